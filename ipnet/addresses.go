package ipnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// lease grants each wish its addresses; they are the pod's own once the event is durable. Those that were chosen are
// granted first: no other wish gets them by chance.
func (n *Network) lease(ev *pod.AddPod, wishes []wish, t *eventloop.Txn) ([][]ipam.Lease, error) {
	granted := make([][]ipam.Lease, len(wishes))
	for _, chosen := range []bool{true, false} {
		for i, w := range wishes {
			if (len(w.wanted) > 0) != chosen {
				continue
			}
			leases, err := n.leaseOne(ev, w, t)
			if err != nil {
				return nil, err
			}
			granted[i] = leases
		}
	}
	return granted, nil
}

func (n *Network) leaseOne(ev *pod.AddPod, w wish, t *eventloop.Txn) ([]ipam.Lease, error) {
	addresses := n.allocator(w.network)
	if addresses == nil {
		if len(w.wanted) > 0 {
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: address %s asked for, but network %s has no addresses",
				ev, w.name, w.wanted[0], w.network)
		}
		return nil, nil // it has none, or brings its own
	}
	r := ipam.Request{Holder: holderOf(ev.Key, w.name), Addresses: w.wanted, From: n.olderHolders(ev, w.network)}
	if w.delegated {
		return n.holdDelegated(ev, w, r, t)
	}
	if w.network != "" {
		return n.grant(ev, w, r, t)
	}
	for _, a := range w.wanted {
		if err := n.usable(ev, "address "+a.String(), a); err != nil {
			return nil, err
		}
	}
	var err error
	if r.Pools, err = n.poolsFor(ev); err != nil {
		return nil, err
	}
	return n.grant(ev, w, r, t)
}

// grant leases from the pools of a wish's network.
func (n *Network) grant(ev *pod.AddPod, w wish, r ipam.Request, t *eventloop.Txn) ([]ipam.Lease, error) {
	addresses := n.allocator(w.network)
	leases, err := addresses.Lease(r)
	if err != nil {
		return nil, n.refusal(ev, w, err)
	}
	t.OnRollback(func() error { addresses.Undo(r.Holder); return nil })
	for _, l := range leases {
		l.State = ipam.Used
		t.Save(leasesBucket, l.Key(), l)
	}
	t.OnCommit(func() { addresses.Commit(r.Holder) })
	return leases, nil
}

// holdDelegated takes what another plugin gave. It is not ours to give, but an address that is in one of the node's pools
// all the same is held there, so that no other pod gets it.
func (n *Network) holdDelegated(ev *pod.AddPod, w wish, r ipam.Request, t *eventloop.Txn) ([]ipam.Lease, error) {
	r.Addresses, r.Pools = nil, []string{}
	var leases []ipam.Lease
	for _, a := range w.wanted {
		family := wire.FamilyOf(a)
		if !n.nodeAddress(family).IsValid() {
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: the IPAM plugin gave %s, but the node has no pool of %s, so no way there", ev, a, family)
		}
		if n.addresses.Gives(a) {
			r.Addresses = append(r.Addresses, a)
		} else if c := n.holderOfAddress(a); c != nil && !older(ev, c) {
			return nil, n.refusal(ev, w, ipam.ErrInUse{Address: a, Holder: c.Key.String()})
		}
		leases = append(leases, ipam.Lease{Address: a})
	}
	_, err := n.grant(ev, w, r, t)
	return leases, err
}

// holderOfAddress is the attachment that has an address on the network default.
func (n *Network) holderOfAddress(a netip.Addr) *connection {
	for _, c := range n.wired {
		for _, i := range c.Interfaces {
			if i.Network == "" && addressIn(i, a) >= 0 {
				return c
			}
		}
	}
	return nil
}

// addressIn is where an interface has an address; -1 if it has not.
func addressIn(i pod.Interface, a netip.Addr) int {
	return slices.IndexFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// AddressPod gives the main interface of an attachment that awaits them its addresses; all or nothing. On the L2 network
// that it is on another plugin says all: prefixes, gateways and routes are as it gave them.
func (n *Network) AddressPod(_ context.Context, ev *pod.AddressPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	c, main := n.wired[ev.Key], -1
	if ev.Attachment != nil {
		main = ev.Main()
	}
	if c == nil || c.displaced || main < 0 {
		return fmt.Errorf("%s: there is no interface that awaits addresses", ev)
	}
	if err := checkDelegated(ev, &ev.Requested); err != nil {
		return err
	}
	addressed(&ev.Attachment.Interfaces[main], &ev.Requested)
	if err := unambiguous(ev, ev.Attachment.Interfaces); err != nil {
		return err
	}
	before := n.podValues(c.Attachment)
	n.remember(ev.Attachment, t)
	replace(t, before, n.podValues(ev.Attachment))
	return nil
}

// addressed puts into an interface what another plugin gave, of each destination the first route.
func addressed(i *pod.Interface, r *pod.Requested) {
	i.Addresses, i.Gateways, i.Pools = r.Delegated, r.DelegatedGateways, make([]string, len(r.Delegated))
	for _, route := range r.Delegation.Routes {
		at := slices.IndexFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == route.Destination.Addr().Is4() })
		isThere := func(o pod.Route) bool { return o.Destination == route.Destination }
		if at < 0 || slices.ContainsFunc(i.Routes, isThere) {
			continue
		}
		if !route.Gateway.IsValid() {
			route.Gateway = i.Gateways[at]
		}
		i.Routes = append(i.Routes, route)
	}
}
