package attach

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// lease allocates the addresses of each spec, which the pod has once the event is durable. Requested addresses are allocated first, so that
// no other spec gets them.
func (rq *request) lease(specs []spec) ([][]ipam.Lease, error) {
	granted := make([][]ipam.Lease, len(specs))
	for _, chosen := range []bool{true, false} {
		for i, s := range specs {
			if (len(s.wanted) > 0) != chosen {
				continue
			}
			leases, err := rq.leaseOne(s)
			if err != nil {
				return nil, err
			}
			granted[i] = leases
		}
	}
	return granted, nil
}

func (rq *request) leaseOne(s spec) ([]ipam.Lease, error) {
	addresses := rq.networks.Allocator(s.network)
	if addresses == nil {
		if len(s.wanted) > 0 {
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: interface %s: address %s asked for, but network %s has no addresses",
				rq.ev, s.name, s.wanted[0], s.network)
		}
		return nil, nil // no addresses, or those that the pod requests with prefix lengths
	}
	r := ipam.Request{Holder: desired.HolderOf(rq.ev.Key, s.name), Namespace: rq.ev.ID.Namespace, Addresses: s.wanted, From: rq.olderHolders(s.network)}
	if s.delegated {
		return rq.holdDelegated(s, r)
	}
	if s.network != "" {
		return rq.grant(s, r)
	}
	for _, a := range s.wanted {
		if err := rq.networks.Pools().Usable(rq.ev, "address "+a.String(), a); err != nil {
			return nil, err
		}
	}
	var err error
	if r.Pools, err = rq.networks.Pools().ForPod(rq.ev); err != nil {
		return nil, err
	}
	return rq.grant(s, r)
}

// grant allocates from the pools of a spec's network.
func (rq *request) grant(s spec, r ipam.Request) ([]ipam.Lease, error) {
	addresses := rq.networks.Allocator(s.network)
	leases, err := addresses.Lease(r)
	if err != nil {
		return nil, rq.refusal(s, err)
	}
	rq.t.OnRollback(func() error { addresses.Undo(r.Holder); return nil })
	for _, l := range leases {
		l.State = ipam.Used
		rq.t.Save(networks.LeasesBucket, l.Key(), l)
	}
	rq.t.OnCommit(func() { addresses.Commit(r.Holder) })
	return leases, nil
}

// holdDelegated records the addresses that another plugin allocated. An address that is also in a pool of the node is held there, so that
// no other pod gets it. The node and the dataplane route the address to the pod, and a tenant may have written the configuration of the plugin:
// so an address of a pool is one that the pod could also request, and another address is one that the administrator permits.
func (rq *request) holdDelegated(s spec, r ipam.Request) ([]ipam.Lease, error) {
	r.Addresses, r.Pools = nil, []string{}
	var leases []ipam.Lease
	for _, a := range s.wanted {
		family := wire.FamilyOf(a)
		if !rq.networks.NodeAddress(family).IsValid() {
			return nil, pod.Errorf(pod.CodeUnknownNetwork, "%s: the IPAM plugin gave %s, but the node has no pool of %s, so no way there", rq.ev, a, family)
		}
		isPermitted := rq.mayDelegate(a)
		serves := rq.networks.Pools().Usable
		if isPermitted {
			serves = rq.networks.Pools().Serves // Weft does not allocate from a disabled pool, but the administrator permits that others do
		}
		if err := serves(rq.ev, "address "+a.String()+" of the IPAM plugin", a); err != nil {
			return nil, err
		}
		holder, by := rq.holderBeside("", a, rq.ev.ID, rq.ev.Key), rq.networks.Occupant(a)
		switch {
		case rq.networks.Allocator("").Allocates(a):
			r.Addresses = append(r.Addresses, a)
		case !isPermitted:
			return nil, pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin gave %s, which is in no pool of the node and in none of delegatedCIDRs: "+
				"the node would route it to the pod; the administrator can permit its range", rq.ev, a)
		case holder != "":
			return nil, rq.refusal(s, ipam.ErrInUse{Address: a, Holder: holder})
		case by != "":
			return nil, rq.refusal(s, ipam.ErrOccupied{Address: a, By: by})
		}
		leases = append(leases, ipam.Lease{Address: a})
	}
	_, err := rq.grant(s, r)
	return leases, err
}

// mayDelegate reports whether other IPAM plugins may give an address that is in no pool of the node.
func (ps *Pods) mayDelegate(a netip.Addr) bool {
	return slices.ContainsFunc(ps.config.DelegatedCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// addressIn returns the index of an address of an interface; -1 if the interface does not have it.
func addressIn(i pod.Interface, a netip.Addr) int {
	return slices.IndexFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr() == a })
}

// Address gives the main interface of an attachment that awaits addresses its addresses; all or nothing. On its L2 network
// another plugin decides everything: prefixes, gateways and routes are those of that plugin.
func (ps *Pods) Address(ev *pod.AddressPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	c, main := ps.wired[ev.Key], -1
	if ev.Attachment != nil {
		main = ev.Main()
	}
	if c == nil || c.displaced || main < 0 {
		return fmt.Errorf("%s: there is no interface that awaits addresses", ev)
	}
	if err := checkDelegated(ev, &ev.Requested); err != nil {
		return err
	}
	if err := ps.checkUnused(ev, &ev.Attachment.Interfaces[main]); err != nil {
		return err
	}
	addressed(&ev.Attachment.Interfaces[main], &ev.Requested)
	if err := unambiguous(ev, ev.Attachment.Interfaces); err != nil {
		return err
	}
	defer ps.replaceCommon(t)()
	before := ps.podValues(c.Attachment)
	ps.admit(ev.Attachment, t)
	ps.remember(ev.Attachment, t)
	desired.Replace(t, before, ps.podValues(ev.Attachment))
	return nil
}

// checkUnused rejects what an annotation on such a network cannot request either: an address of another interface on this node, and the
// address of a subnet. The DHCP server may be any pod of the network.
func (ps *Pods) checkUnused(ev *pod.AddressPod, i *pod.Interface) error {
	for _, p := range ev.Requested.Delegated {
		if namesSubnet(p) {
			return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin gave %s, which cannot be a pod's address", ev, p)
		}
		if holder := ps.holderBeside(i.Network, p.Addr(), ev.Attachment.Pod, ev.Key); holder != "" {
			return ps.inUse(ev.String(), ev.Attachment.Pod, ipam.ErrInUse{Address: p.Addr(), Holder: holder})
		}
	}
	return nil
}

// addressed sets the addresses, gateways and routes of another plugin, for each destination the first route.
func addressed(i *pod.Interface, r *pod.Requested) {
	i.Addresses, i.Gateways, i.Pools = r.Delegated, r.DelegatedGateways, make([]string, len(r.Delegated))
	taken := destinationsOf(i.Routes)
	for _, route := range r.Delegation.Routes {
		at := slices.IndexFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == route.Destination.Addr().Is4() })
		if at < 0 || taken[route.Destination] {
			continue
		}
		taken[route.Destination] = true
		if !route.Gateway.IsValid() {
			route.Gateway = i.Gateways[at]
		}
		i.Routes = append(i.Routes, route)
	}
}

// refusal says why the pod gets no address, with a code and advice.
func (rq *request) refusal(s spec, err error) error {
	what := rq.ev.String()
	if s.name != rq.ev.Key.IfName {
		what += ": interface " + s.name
	}
	var exhausted ipam.ErrExhausted
	var inUse ipam.ErrInUse
	var outside ipam.ErrOutside
	var cooling ipam.ErrCooling
	var occupied ipam.ErrOccupied
	switch {
	case errors.As(err, &occupied):
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w; ask for another one, or for none, or remove it there", what, err)
	case errors.As(err, &cooling):
		wait := cooling.FreeAt.Sub(rq.networks.Config.Now()).Round(100 * time.Millisecond)
		return pod.Errorf(pod.CodeTryAgain, "%s: address %s was released by a pod of another namespace and cools down for %s; try again then, "+
			"or ask for another one, or for none", what, cooling.Address, wait)
	case errors.As(err, &exhausted) && exhausted.Cooling > 0:
		wait := exhausted.NextFree.Sub(rq.networks.Config.Now()).Round(100 * time.Millisecond)
		return pod.Errorf(pod.CodeTryAgain, "%s: no address of pool %s is free, %d cooling down, the next is free in %s; try again then",
			what, exhausted.Pool+exhausted.Skipped(), exhausted.Cooling, wait)
	case errors.As(err, &exhausted) && exhausted.NoBlock:
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, and none that it may have was given to it yet; try again", what, err)
	case errors.As(err, &exhausted) && s.custom != nil:
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w, %d by this node; delete pods of network %s, or give it larger cidrs", what, err, rq.heldOf(s, exhausted), s.network)
	case errors.As(err, &exhausted):
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w, %d by this node; delete pods, or give the node another pool", what, err, rq.heldOf(s, exhausted))
	case errors.As(err, &inUse):
		return rq.inUse(what, rq.ev.ID, inUse)
	case errors.As(err, &outside):
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %w; %s", what, err, rq.outsideAdvice(s, outside))
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: %w", what, err)
}

// inUse says who has the address that the pod id cannot have.
func (ps *Pods) inUse(what string, id pod.ID, e ipam.ErrInUse) error {
	if ps.isOfEarlierPod(id, e.Holder) {
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, of an earlier pod of this name that is not deleted yet; try again", what, e)
	}
	return pod.Errorf(pod.CodeAddressInUse, "%s: address %s is held by %s; ask for another one, or for none", what, e.Address, ps.holderName(e.Holder))
}

// heldOf counts the addresses of exhausted pools that this node gave to pods.
func (rq *request) heldOf(s spec, e ipam.ErrExhausted) (held uint64) {
	for _, pool := range rq.networks.Allocator(s.network).Stats() {
		if slices.Contains(e.Pools(), pool.Name) {
			held += pool.Used + pool.Leased
		}
	}
	return held
}

// holderName returns the pod of a holder with its attachment, or the holder if its pod is unknown.
func (ps *Pods) holderName(holder string) string {
	for _, c := range ps.wired {
		if slices.ContainsFunc(c.Interfaces, func(i pod.Interface) bool { return desired.HolderOf(c.Key, i.Name) == holder }) {
			return c.Name() + " on this node (" + holder + ")"
		}
	}
	return holder
}

// outsideAdvice says which addresses a pod can request.
func (rq *request) outsideAdvice(s spec, e ipam.ErrOutside) string {
	if e.Elsewhere {
		return "other nodes give it out; ask for another one, or for none"
	}
	if s.custom != nil {
		return fmt.Sprintf("ask for another one of %v, or for none", s.custom.Network.CIDRs)
	}
	var prefixes []string
	for _, p := range rq.networks.Pools().All {
		if !p.Disabled && p.Admits(rq.ev.ID.Namespace) {
			prefixes = append(prefixes, fmt.Sprintf("%s (pool %s)", p.Prefix, p.Name))
		}
	}
	return fmt.Sprintf("ask for another one of %s, or for none", strings.Join(prefixes, ", "))
}
