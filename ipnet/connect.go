package ipnet

import (
	"context"
	"errors"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
)

// ConnectPod gives a pod its addresses and its main interface.
func (n *Network) ConnectPod(_ context.Context, ev *pod.AddPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	if ev.Attachment == nil {
		return errors.New("the event has no attachment: a handler before this one makes it")
	}
	if err := refuseAnnotations(ev); err != nil {
		return err
	}
	mac, err := n.macFor(ev)
	if err != nil {
		return err
	}
	leases, err := n.lease(ev, t)
	if err != nil {
		return err
	}
	main := n.mainInterface(ev.Key, mac, leases)
	ev.Attachment.Interfaces = append([]pod.Interface{main}, ev.Attachment.Interfaces...)
	n.displace(ev, t)
	n.remember(ev.Attachment, t)
	podValues(ev.Attachment).put(t)
	return nil
}

// lease grants the pod its addresses; they are its own once the event is durable.
func (n *Network) lease(ev *pod.AddPod, t *eventloop.Txn) ([]ipam.Lease, error) {
	holder := holderOf(ev.Key)
	leases, err := n.addresses.Lease(ipam.Request{Holder: holder, Addresses: ev.Requested.Addresses})
	if err != nil {
		return nil, n.refusal(ev, err)
	}
	t.OnRollback(func() error { n.addresses.Undo(holder); return nil })
	for _, l := range leases {
		l.State = ipam.Used
		t.Save(leasesBucket, l.Key(), l)
	}
	t.OnCommit(func() { n.addresses.Commit(holder) })
	return leases, nil
}

// remember makes the attachment one of the wired.
func (n *Network) remember(a *pod.Attachment, t *eventloop.Txn) {
	before, was := n.wired[a.Key]
	n.wired[a.Key] = newConnection(a)
	t.OnRollback(func() error {
		delete(n.wired, a.Key)
		if was {
			n.wired[a.Key] = before
		}
		return nil
	})
}

// displace gives up the values of attachments whose namespace's path now leads to this pod's namespace. Their own is
// gone, or nothing else could stand there; they keep their addresses until their DEL.
func (n *Network) displace(ev *pod.AddPod, t *eventloop.Txn) {
	for _, c := range n.wired {
		if c.displaced || c.Key == ev.Key || c.Netns.Path != ev.Netns.Path || c.Netns == ev.Netns {
			continue
		}
		c.displaced = true
		t.OnRollback(func() error { c.displaced = false; return nil })
		for _, key := range podValues(c.Attachment).keys() {
			t.Delete(key)
		}
	}
}
