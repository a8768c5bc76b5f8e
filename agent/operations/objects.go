package operations

import (
	"context"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/shown"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	"github.com/weftnet/weft/wire"
)

// objects lists and explains the scheduler's objects.
type objects struct {
	scheduler *kvscheduler.Scheduler
	dataplane *vpp.Client
	owners    *owners.Index
}

// Objects lists the scheduler's objects by kind and name, of one pod or of all.
func (o *objects) Objects(_ context.Context, req *operatorv1.ObjectsRequest) (*operatorv1.ObjectsReply, error) {
	view := o.scheduler.View()
	down := o.dataplane.Health() != nil
	reply := &operatorv1.ObjectsReply{}
	of := o.owners.Now()
	for _, ref := range matching(view, req.Prefix) {
		all := of.Of(ref.String())
		if status, ok := view.Status(ref); ok && (req.Pod == "" || isOwned(all, req.Pod)) {
			object := o.object(view, ref, status)
			object.Owners = ownersOf(all)
			object.Phase = shown.Phase(ref.Kind, status, down)
			reply.Objects = append(reply.Objects, object)
		}
	}
	return reply, nil
}

// phases counts the objects by phase.
func (o *objects) phases() map[string]uint32 {
	return phasesOf(o.scheduler.View(), o.dataplane.Health() != nil)
}

func phasesOf(view kvscheduler.View, down bool) map[string]uint32 {
	counts := map[string]uint32{}
	for _, kind := range wire.Kinds() {
		for _, status := range view.All(kvscheduler.Kind(kind)) {
			counts[shown.Phase(kvscheduler.Kind(kind), status, down)]++
		}
	}
	return counts
}

func (o *objects) object(view kvscheduler.View, ref kvscheduler.Ref, status kvscheduler.Status) *operatorv1.Object {
	obj := &operatorv1.Object{
		Ref: ref.String(), Since: stamp(status.Since),
		Missing: status.Missing,
		Attempt: uint32(status.Attempt),
		RetryAt: stamp(status.RetryAt),
		Error:   textOf(status.Err),
	}
	if v, ok := view.Desired(ref); ok {
		obj.Desired = document(o.scheduler.Redacted(ref, v))
	}
	if v, _, ok := view.Applied(ref); ok {
		obj.Applied = document(o.scheduler.Redacted(ref, v))
	}
	return obj
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
