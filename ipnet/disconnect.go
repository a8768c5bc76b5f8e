package ipnet

import (
	"context"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// DisconnectPod takes away what wires an attachment, by its key alone. Its addresses cool down once all is committed.
// For an attachment that never was it does nothing.
func (n *Network) DisconnectPod(_ context.Context, ev *pod.DeletePod, t *eventloop.Txn) error {
	c, ok := n.wired[ev.Key]
	if !ok {
		n.release("", holderOf(ev.Key, ev.Key.IfName), t)
		return nil
	}
	for _, i := range c.Interfaces {
		n.release(i.Network, holderOf(ev.Key, i.Name), t)
	}
	delete(n.wired, ev.Key)
	t.OnRollback(func() error { n.wired[ev.Key] = c; return nil })
	n.forget(ev.Key, t)
	values := n.podValues(c.Attachment) // c is wired no more, so those that it shares are without what is its own
	shared := n.shared(c)
	shared.put(t)
	for _, key := range values.keys() {
		if !slices.Contains(shared.keys(), key) {
			t.Delete(key)
		}
	}
	return nil
}

// release gives back what a holder has on a network, once the event is durable.
func (n *Network) release(network, holder string, t *eventloop.Txn) {
	addresses := n.allocator(network)
	if addresses == nil {
		return
	}
	cooling := addresses.Released(holder)
	for _, l := range cooling {
		t.Save(leasesBucket, l.Key(), l)
	}
	if len(cooling) > 0 {
		t.OnCommit(func() { addresses.Release(holder) })
	}
}
