package ipnet

import (
	"context"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// DisconnectPod takes away what wires an attachment, by its key alone. Its addresses cool down once all is committed.
// For an attachment that never was it does nothing.
func (n *Network) DisconnectPod(_ context.Context, ev *pod.DeletePod, t *eventloop.Txn) error {
	holder := holderOf(ev.Key)
	if cooling := n.addresses.Released(holder); len(cooling) > 0 {
		for _, l := range cooling {
			t.Save(leasesBucket, l.Key(), l)
		}
		t.OnCommit(func() { n.addresses.Release(holder) })
	}
	c, ok := n.wired[ev.Key]
	if !ok {
		return nil
	}
	delete(n.wired, ev.Key)
	t.OnRollback(func() error { n.wired[ev.Key] = c; return nil })
	shared := n.sharedKeys(c)
	for _, key := range podValues(c.Attachment).keys() {
		if !shared[key] {
			t.Delete(key)
		}
	}
	return nil
}
