package attach

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// leasing allocates the addresses of the specs of one request. The pod has them once its event is durable.
type leasing struct {
	request        *pod.Request
	t              *eventloop.Txn
	networks       *networks.Networks
	connections    connections
	delegatedCIDRs []netip.Prefix // see Config
}

// lease allocates the addresses of each spec. Requested addresses are allocated first, so that no other spec gets them.
func (l *leasing) lease(specs []spec) ([][]ipam.Lease, error) {
	granted := make([][]ipam.Lease, len(specs))
	for _, chosen := range []bool{true, false} {
		for i, s := range specs {
			if (len(s.addresses.wanted) > 0) != chosen {
				continue
			}
			leases, err := l.leaseOne(s)
			if err != nil {
				return nil, err
			}
			granted[i] = leases
		}
	}
	return granted, nil
}

// leaseOne allocates the addresses of a spec: by its network, by the pools that the pod may use on the network default,
// or by another plugin.
func (l *leasing) leaseOne(s spec) ([]ipam.Lease, error) {
	wanted := s.addresses.wanted
	if s.network.allocator() == nil {
		if len(wanted) > 0 {
			return nil, pod.Errorf(pod.CodeUnknownNetwork,
				"%s: interface %s: address %s requested, but network %s has no addresses",
				l.request, s.name, wanted[0], s.network.name)
		}
		return nil, nil // no addresses, or the ones that the pod requests with prefix lengths
	}
	r := ipam.Request{
		Holder:    desired.HolderOf(l.request.Key, s.name),
		Namespace: l.request.ID.Namespace,
		Pod:       l.request.ID.Name,
		Addresses: wanted,
		From:      l.connections.olderHolders(l.request.ID, l.request.Key, s.network.name),
	}
	if s.addresses.claim != nil {
		r.Claim = s.addresses.claim.String()
	}
	if s.addresses.delegated {
		return l.holdDelegated(s, r)
	}
	if s.network.name != "" {
		return l.grant(s, r)
	}
	pools := l.networks.Pools()
	for _, a := range wanted {
		if err := pools.Usable(l.request, "address "+a.String(), a); err != nil {
			return nil, err
		}
	}
	var err error
	if r.Pools, err = pools.ForPod(l.request); err != nil {
		return nil, err
	}
	return l.grant(s, r)
}

// grant allocates from the pools of a spec's network.
func (l *leasing) grant(s spec, r ipam.Request) ([]ipam.Lease, error) {
	addresses := s.network.allocator()
	leases, err := addresses.Lease(r)
	if err != nil {
		return nil, l.refusal(s, err)
	}
	l.t.OnRollback(func() error { addresses.Undo(r.Holder); return nil })
	for _, lease := range leases {
		lease.State = ipam.Used
		l.t.Save(networks.LeasesBucket, lease.Key(), lease)
	}
	l.t.OnCommit(func() { addresses.Commit(r.Holder) })
	return leases, nil
}

// holdDelegated records the addresses that another plugin allocated. An address that is also in a pool of the node is
// held there, so that no other pod gets it. The node and the dataplane route the address to the pod, and a tenant may
// have written the configuration of the plugin: so an address of a pool is one that the pod could also request, and
// another address is one that the administrator permits.
func (l *leasing) holdDelegated(s spec, r ipam.Request) ([]ipam.Lease, error) {
	r.Addresses = nil
	r.Pools = []string{}
	var leases []ipam.Lease
	for _, a := range s.addresses.wanted {
		family := netaddr.FamilyOf(a)
		if !l.networks.NodeAddress(family).IsValid() {
			return nil, pod.Errorf(pod.CodeUnknownNetwork,
				"%s: the IPAM plugin returned %s, but the node has no pool of %s, so no route to it", l.request, a,
				family)
		}
		isPermitted := l.mayDelegate(a)
		serves := l.networks.Pools().Usable
		if isPermitted {
			// Weft does not allocate from a disabled pool, but the administrator permits that others do
			serves = l.networks.Pools().Serves
		}
		if err := serves(l.request, "address "+a.String()+" of the IPAM plugin", a); err != nil {
			return nil, err
		}
		holder := l.connections.otherHolder("", a, l.request.ID, l.request.Key)
		by := l.networks.Occupant(a)
		switch {
		case l.networks.Allocator("").Allocates(a):
			r.Addresses = append(r.Addresses, a)
		case !isPermitted:
			return nil, pod.Errorf(pod.CodeInvalidConfig,
				"%s: the IPAM plugin returned %s, which is outside the node's pools and delegatedCIDRs: "+
					"the node would route it to the pod; the administrator can permit its range", l.request, a)
		case holder != "":
			return nil, l.refusal(s, ipam.ErrInUse{Address: a, Holder: holder})
		case by != "":
			return nil, l.refusal(s, ipam.ErrOccupied{Address: a, By: by})
		}
		leases = append(leases, ipam.Lease{Address: a})
	}
	_, err := l.grant(s, r)
	return leases, err
}

// mayDelegate reports whether other IPAM plugins may give an address that is in no pool of the node.
func (l *leasing) mayDelegate(a netip.Addr) bool {
	return slices.ContainsFunc(l.delegatedCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// refusal says why the pod gets no address, with a code and advice.
func (l *leasing) refusal(s spec, err error) error {
	what := subject(l.request, s.name)
	var exhausted ipam.ErrExhausted
	var inUse ipam.ErrInUse
	var outside ipam.ErrOutside
	var cooling ipam.ErrCooling
	var occupied ipam.ErrOccupied
	switch {
	case errors.As(err, &occupied) && occupied.IsClaim:
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w, which holds it for its pods; request another one or none", what, err)
	case errors.As(err, &occupied):
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w; request another one or none, or remove it there", what,
			err)
	case errors.As(err, &cooling):
		wait := cooling.FreeAt.Sub(l.networks.Config.Now()).Round(100 * time.Millisecond)
		return pod.Errorf(pod.CodeTryAgain,
			"%s: address %s was released by a pod of another namespace and cools down for %s; try again then, "+
				"or request another one or none", what, cooling.Address, wait)
	case errors.As(err, &exhausted) && exhausted.Cooling > 0:
		wait := exhausted.NextFree.Sub(l.networks.Config.Now()).Round(100 * time.Millisecond)
		return pod.Errorf(pod.CodeTryAgain,
			"%s: no address of pool %s is free, %d cooling down, the next is free in %s; try again then",
			what, exhausted.Pool+exhausted.Skipped(), exhausted.Cooling, wait)
	case errors.As(err, &exhausted) && exhausted.NoBlock:
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, and none that the pod may use is assigned to the node yet; try again", what,
			err)
	case errors.As(err, &exhausted) && s.network.custom != nil:
		return pod.Errorf(pod.CodePoolExhausted,
			"%s: %w, %d by this node; delete pods of network %s, or give it larger cidrs", what, err,
			heldOf(s.network, exhausted), s.network.name)
	case errors.As(err, &exhausted):
		return pod.Errorf(pod.CodePoolExhausted, "%s: %w, %d by this node; delete pods, or give the node another pool",
			what, err, heldOf(s.network, exhausted))
	case errors.As(err, &inUse):
		return l.connections.inUse(what, l.request.ID, inUse)
	case errors.As(err, &outside):
		return pod.Errorf(pod.CodeUnknownNetwork, "%s: %w; %s", what, err, l.outsideAdvice(s.network, outside))
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: %w", what, err)
}

// heldOf counts the addresses of exhausted pools of a network that this node gave to pods.
func heldOf(n network, e ipam.ErrExhausted) (held uint64) {
	for _, pool := range n.allocator().Stats() {
		if slices.Contains(e.Pools(), pool.Name) {
			held += pool.Used + pool.Leased
		}
	}
	return held
}

// outsideAdvice says which addresses of a network a pod can request.
func (l *leasing) outsideAdvice(n network, e ipam.ErrOutside) string {
	if e.Elsewhere {
		return "other nodes give it out; request another one or none"
	}
	if n.custom != nil {
		return fmt.Sprintf("request another one of %v, or none", n.custom.Network.CIDRs)
	}
	var prefixes []string
	for _, p := range l.networks.Pools().All {
		if !p.Disabled && p.Admits(l.request.ID.Namespace) {
			prefixes = append(prefixes, fmt.Sprintf("%s (pool %s)", p.Prefix, p.Name))
		}
	}
	return fmt.Sprintf("request another one of %s, or none", strings.Join(prefixes, ", "))
}

// release releases the addresses of a holder after the commit. They cool down.
func release(addresses *ipam.Allocator, holder string, t *eventloop.Txn) {
	if addresses == nil {
		return
	}
	cooling := addresses.Released(holder)
	for _, lease := range cooling {
		t.Save(networks.LeasesBucket, lease.Key(), lease)
	}
	if len(cooling) > 0 {
		t.OnCommit(func() { addresses.Release(holder) })
	}
}

// mainAddresses returns the addresses that are requested for the main interface: by another plugin, else by the runtime
// and, for other families, by the annotation.
func mainAddresses(request *pod.Request) ([]netip.Prefix, error) {
	annotated, err := pod.ParseAddresses(request.Annotations)
	if err != nil {
		return nil, request.Failed(err)
	}
	if len(annotated) > 0 &&
		(request.Mode == pod.ModeChained || request.Requested.AwaitsAddresses || len(request.Requested.Delegated) > 0) {
		return nil, pod.Errorf(pod.CodeInvalidAnnotation,
			"%s: annotation %s: the addresses of the main interface are another plugin allocates the addresses; "+
				"remove the annotation",
			request, pod.AnnotationIPs)
	}
	if len(request.Requested.Delegated) > 0 {
		delegated := desired.Singles(request.Requested.Delegated)
		slices.SortFunc(delegated, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) }) // IPv4 first
		return delegated, checkDelegated(request, &request.Requested)
	}
	wanted := slices.Clone(request.Requested.Addresses)
	for _, a := range annotated {
		if !desired.HasFamily(wanted, netaddr.FamilyOf(a)) {
			wanted = append(wanted, netaddr.Single(a))
		}
	}
	return wanted, nil
}

// checkDelegated rejects addresses of another plugin that are invalid for a pod.
func checkDelegated(ev fmt.Stringer, r *pod.Requested) error {
	families := make(map[netaddr.Family]bool)
	for _, p := range r.Delegated {
		a := p.Addr()
		if !canBePods(a) {
			return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin returned %s, which cannot be a pod's address", ev,
				p)
		}
		if families[netaddr.FamilyOf(a)] {
			return pod.Errorf(pod.CodeInvalidConfig,
				"%s: the IPAM plugin returned several addresses of one family; one is possible", ev)
		}
		families[netaddr.FamilyOf(a)] = true
	}
	return nil
}

// canBePods reports whether an address can be the address of a pod.
func canBePods(a netip.Addr) bool {
	return a.IsValid() && !a.Is4In6() && !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() &&
		!a.IsLinkLocalUnicast()
}

// namesSubnet reports whether an address with its prefix length is the address of the subnet or its broadcast address.
func namesSubnet(p netip.Prefix) bool {
	a := p.Addr()
	return a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == netaddr.Last(p))
}

func addressesOf(prefixes []netip.Prefix) []netip.Addr {
	var addresses []netip.Addr
	for _, p := range prefixes {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}
