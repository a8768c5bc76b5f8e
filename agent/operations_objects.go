package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weftnet/weft/kvscheduler"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/wire"
)

// Objects lists what is desired of the machine and how it stands, by kind and name.
func (o *operations) Objects(_ context.Context, req *weftv1.ObjectsRequest) (*weftv1.ObjectsReply, error) {
	view := o.scheduler.View()
	reply := &weftv1.ObjectsReply{}
	for _, ref := range matching(view, req.Prefix) {
		if status, ok := view.Status(ref); ok {
			reply.Objects = append(reply.Objects, o.object(view, ref, status))
		}
	}
	return reply, nil
}

// phases counts the objects by phase.
func (o *operations) phases() map[string]uint32 {
	view := o.scheduler.View()
	counts := map[string]uint32{}
	for _, kind := range wire.Kinds() {
		for _, status := range view.All(kvscheduler.Kind(kind)) {
			counts[status.Phase.String()]++
		}
	}
	return counts
}

func (o *operations) object(view kvscheduler.View, ref kvscheduler.Ref, status kvscheduler.Status) *weftv1.Object {
	obj := &weftv1.Object{
		Ref: ref.String(), Phase: status.Phase.String(), Since: stamp(status.Since),
		Missing: status.Missing, Attempt: uint32(status.Attempt), RetryAt: stamp(status.RetryAt),
	}
	if status.Err != nil {
		obj.Error = status.Err.Error()
	}
	if v, ok := view.Desired(ref); ok {
		obj.Desired = document(o.scheduler.Redacted(ref, v))
	}
	if v, _, ok := view.Applied(ref); ok {
		obj.Applied = document(o.scheduler.Redacted(ref, v))
	}
	return obj
}

// Why explains the objects whose key is, or begins with, what was asked for. Of several it names those that are not in
// sync.
func (o *operations) Why(_ context.Context, req *weftv1.WhyRequest) (*weftv1.WhyReply, error) {
	view := o.scheduler.View()
	refs := matching(view, req.Ref)
	if exact, err := kvscheduler.ParseRef(req.Ref); err == nil && (len(refs) == 0 || slices.Contains(refs, exact)) {
		refs = []kvscheduler.Ref{exact}
	}
	if len(refs) == 0 {
		return &weftv1.WhyReply{Lines: []string{
			fmt.Sprintf("no object has a key that begins with %q; weftctl objects lists them", req.Ref),
		}}, nil
	}
	reply := &weftv1.WhyReply{}
	for _, ref := range refs {
		reply.Lines = append(reply.Lines, o.scheduler.Why(ref)...)
	}
	if len(reply.Lines) == 0 {
		reply.Lines = settled(view, refs)
	}
	return reply, nil
}

// settled says how objects stand that there is nothing to explain of: one alone by its phase, several by their number.
func settled(view kvscheduler.View, refs []kvscheduler.Ref) []string {
	if len(refs) > 1 {
		return []string{fmt.Sprintf("all %d objects are in sync", len(refs))}
	}
	switch status, _ := view.Status(refs[0]); status.Phase {
	case kvscheduler.InSync:
		return []string{fmt.Sprintf("%s is in sync", refs[0])}
	case kvscheduler.Observed:
		return []string{fmt.Sprintf("%s is there: it is seen, and not ours to make", refs[0])}
	default: // it became so just now, and is worked on
		return []string{fmt.Sprintf("%s is %s", refs[0], status.Phase)}
	}
}

func matching(view kvscheduler.View, prefix string) []kvscheduler.Ref {
	var refs []kvscheduler.Ref
	for _, kind := range wire.Kinds() {
		first := len(refs)
		for name := range view.All(kvscheduler.Kind(kind)) {
			if strings.HasPrefix(wire.Key(kind, name), prefix) {
				refs = append(refs, kvscheduler.Ref{Kind: kvscheduler.Kind(kind), Name: name})
			}
		}
		slices.SortFunc(refs[first:], func(a, b kvscheduler.Ref) int { return strings.Compare(a.Name, b.Name) })
	}
	return refs
}
