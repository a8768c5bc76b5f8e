package operations

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weftnet/weft/kvscheduler"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
	"github.com/weftnet/weft/wire"
)

// Objects lists the scheduler's objects by kind and name.
func (o *Server) Objects(_ context.Context, req *weftv1.ObjectsRequest) (*weftv1.ObjectsReply, error) {
	view, down := o.config.Scheduler.View(), o.config.Dataplane.Health() != nil
	reply := &weftv1.ObjectsReply{}
	for _, ref := range matching(view, req.Prefix) {
		if status, ok := view.Status(ref); ok {
			object := o.object(view, ref, status)
			object.Phase = shownPhase(ref.Kind, status, down)
			reply.Objects = append(reply.Objects, object)
		}
	}
	return reply, nil
}

// phases counts the objects by phase.
func (o *Server) phases() map[string]uint32 {
	return phasesOf(o.config.Scheduler.View(), o.config.Dataplane.Health() != nil)
}

// phaseUnknown replaces InSync for objects of a dataplane that is not connected: it may have lost them.
const phaseUnknown = "Unknown"

// shownPhase returns the phase of an object for operators.
func shownPhase(kind kvscheduler.Kind, status kvscheduler.Status, down bool) string {
	if down && status.Phase == kvscheduler.InSync && wire.IsDataplane(string(kind)) {
		return phaseUnknown
	}
	return status.Phase.String()
}

func phasesOf(view kvscheduler.View, down bool) map[string]uint32 {
	counts := map[string]uint32{}
	for _, kind := range wire.Kinds() {
		for _, status := range view.All(kvscheduler.Kind(kind)) {
			counts[shownPhase(kvscheduler.Kind(kind), status, down)]++
		}
	}
	return counts
}

func (o *Server) object(view kvscheduler.View, ref kvscheduler.Ref, status kvscheduler.Status) *weftv1.Object {
	obj := &weftv1.Object{
		Ref: ref.String(), Since: stamp(status.Since),
		Missing: status.Missing, Attempt: uint32(status.Attempt), RetryAt: stamp(status.RetryAt), Error: textOf(status.Err),
	}
	if v, ok := view.Desired(ref); ok {
		obj.Desired = document(o.config.Scheduler.Redacted(ref, v))
	}
	if v, _, ok := view.Applied(ref); ok {
		obj.Applied = document(o.config.Scheduler.Redacted(ref, v))
	}
	return obj
}

// Why explains the object with the requested key, or, of the objects with that prefix, those that are not in sync.
func (o *Server) Why(_ context.Context, req *weftv1.WhyRequest) (*weftv1.WhyReply, error) {
	view := o.config.Scheduler.View()
	refs := matching(view, req.Ref)
	if exact, err := kvscheduler.ParseRef(req.Ref); err == nil && (len(refs) == 0 || slices.Contains(refs, exact)) {
		refs = []kvscheduler.Ref{exact}
	}
	if len(refs) == 0 {
		return &weftv1.WhyReply{Lines: []string{
			fmt.Sprintf("no objects with prefix %q; weftctl objects lists all", req.Ref),
		}}, nil
	}
	reply := &weftv1.WhyReply{}
	for _, ref := range refs {
		reply.Lines = append(reply.Lines, o.config.Scheduler.Why(ref)...)
	}
	if len(reply.Lines) == 0 {
		reply.Lines = settled(view, refs)
	}
	return reply, nil
}

// settled describes objects without explanations: one object by its phase, several by numbers.
func settled(view kvscheduler.View, refs []kvscheduler.Ref) []string {
	if len(refs) > 1 {
		return []string{countsOf(view, refs)}
	}
	switch status, _ := view.Status(refs[0]); status.Phase {
	case kvscheduler.InSync:
		return []string{fmt.Sprintf("%s is in sync", refs[0])}
	case kvscheduler.Observed:
		return []string{fmt.Sprintf("%s exists; Weft observes it but does not create it", refs[0])}
	default: // an operation is in progress
		return []string{fmt.Sprintf("%s is %s", refs[0], status.Phase)}
	}
}

// countsOf counts objects by phase and names the first one that is not in sync.
func countsOf(view kvscheduler.View, refs []kvscheduler.Ref) string {
	counts, first := map[kvscheduler.Phase]int{}, ""
	for _, ref := range refs {
		status, _ := view.Status(ref)
		counts[status.Phase]++
		if first == "" && status.Phase != kvscheduler.InSync && status.Phase != kvscheduler.Observed {
			first = ref.String()
		}
	}
	if counts[kvscheduler.InSync] == len(refs) {
		return fmt.Sprintf("all %d objects are in sync", len(refs))
	}
	var parts []string
	for _, phase := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[phase], phase))
	}
	if first == "" {
		return strings.Join(parts, ", ")
	}
	return strings.Join(parts, ", ") + "; the first that is not in sync is " + first
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
