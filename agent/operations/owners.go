package operations

import (
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// mostOwners limits the owners in the record of an event: a policy can change the rules of all pods.
const mostOwners = 32

func ownersOf(all pod.Owners) []*operatorv1.ObjectOwner {
	list := make([]*operatorv1.ObjectOwner, 0, len(all))
	for _, o := range all {
		owner := &operatorv1.ObjectOwner{ContainerId: o.ContainerID, Interface: o.Interface}
		if !o.Pod.IsZero() {
			owner.Pod = podOf(o.Pod)
		}
		list = append(list, owner)
	}
	return list
}

// isOwned reports whether an interface of the pod is one of the owners.
func isOwned(all pod.Owners, pod string) bool {
	return slices.ContainsFunc(all, func(o owner) bool { return o.Pod.String() == pod })
}

type owner = pod.Owner

// named returns the text about an object, which begins with its key, with the object's owners after the key.
func named(text, key string, of pod.Owners) string {
	return of.Named(key) + strings.TrimPrefix(text, key)
}

// concerned finds the owners of the objects of events.
type concerned struct {
	owners *owners.Snapshot
	log    map[uint64]*kvscheduler.Record // transactions that are still recorded
}

// by returns the owners of the objects that an event changed or failed to change. A resync that handlers rebuilt names
// all objects, so only those that it repaired count.
func (c *concerned) by(r *eventloop.Record) pod.Owners {
	end := r.Started.Add(r.Took)
	keys := slices.Concat(r.Stuck, r.Pending)
	for _, h := range r.Handlers {
		for _, change := range h.Changes {
			if _, key, is := strings.Cut(change, " "); is && r.Kind == eventloop.None.String() {
				keys = append(keys, key)
			}
		}
	}
	if len(r.SharedWith) == 0 { // else other events share the operations
		keys = append(keys, c.operated(r.Transactions)...)
	}
	return c.ownersAt(keys, end)
}

// operated lists the objects of the operations of transactions.
func (c *concerned) operated(transactions []uint64) []string {
	var keys []string
	for _, seq := range transactions {
		if t := c.log[seq]; t != nil {
			for _, op := range t.Ops {
				keys = append(keys, op.Ref)
			}
		}
	}
	return keys
}

// namesAt returns the names of the owners that objects had, of those that had any.
func (c *concerned) namesAt(keys []string, at time.Time) map[string]string {
	names := make(map[string]string)
	for _, key := range keys {
		if of := c.owners.At(key, at); len(of) > 0 {
			names[key] = of.String()
		}
	}
	return names
}

func (c *concerned) ownersAt(keys []string, at time.Time) pod.Owners {
	var all pod.Owners
	known := make(map[owner]bool)
	for _, key := range keys {
		for _, o := range c.owners.At(key, at) {
			if !known[o] {
				known[o] = true
				all = append(all, o)
			}
		}
	}
	return all
}
