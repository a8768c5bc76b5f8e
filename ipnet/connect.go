package ipnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// ConnectPod gives a pod its addresses, its main interface and those that its annotations ask for; all or nothing.
func (n *Network) ConnectPod(_ context.Context, ev *pod.AddPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	if ev.Attachment == nil {
		return errors.New("the event has no attachment: a handler before this one makes it")
	}
	wishes, err := n.wishes(ev)
	if err != nil {
		return err
	}
	leases, err := n.lease(ev, wishes, t)
	if err != nil {
		return err
	}
	var interfaces []pod.Interface
	for i, w := range wishes {
		interfaces = append(interfaces, n.interfaceOf(w, leases[i]))
	}
	if err := unambiguous(ev, interfaces); err != nil {
		return err
	}
	ev.Attachment.Interfaces = append(interfaces, ev.Attachment.Interfaces...)
	n.handOver(ev, t)
	n.displace(ev, t)
	n.remember(ev.Attachment, t)
	n.podValues(ev.Attachment).put(t)
	return nil
}

// unambiguous refuses a pod two of whose interfaces would lead to the same addresses: networks may overlap, but then a pod
// can be on one of them only.
func unambiguous(ev fmt.Stringer, interfaces []pod.Interface) error {
	taken := make(map[netip.Prefix]pod.Interface)
	for _, i := range interfaces {
		if i.Memif != nil { // its program has routes of its own
			continue
		}
		for _, p := range leadsTo(i) {
			if other, ambiguous := taken[p]; ambiguous && other.Network != i.Network {
				return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interfaces %s (network %s) and %s (network %s) both lead to %s; a pod can have one of them",
					ev, other.Name, other.Network, i.Name, i.Network, p)
			}
			taken[p] = i
		}
	}
	return nil
}

// leadsTo are the destinations of an interface's routes, those that the kernel makes included.
func leadsTo(i pod.Interface) []netip.Prefix {
	var destinations []netip.Prefix
	for _, r := range i.Routes {
		destinations = append(destinations, r.Destination)
	}
	for _, p := range i.Addresses {
		destinations = append(destinations, p.Masked())
	}
	return destinations
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
		for _, key := range n.podValues(c.Attachment).keys() {
			t.Delete(key)
		}
	}
}
