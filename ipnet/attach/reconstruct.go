package attach

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Found is an interface of the machine without a record.
type Found struct {
	Object     string       // name in the dataplane
	Type       string       // pod.TypeTap, pod.TypeVeth or pod.TypeMemif
	Labels     []string     // of its VRF or bridge domain in the dataplane
	Neighbours []netip.Addr // of the dataplane: the addresses that were allocated to the pod's end
	Policers   []wire.Policer
	Memif      *pod.Memif // of type memif
	Pod        pod.ID     // if known
	PodEnd
}

// PodEnd is the pod's end of an interface: a link of the kernel, or the memif of a program.
type PodEnd struct {
	Netns     pod.Netns
	Name      string
	Alias     string
	MAC       netaddr.MAC
	MTU       int // bytes
	RxQueues  int
	TxQueues  int
	Addresses []netip.Prefix // used without Neighbours only, because the pod may have changed them
}

// All lists every address that the interface may have.
func (f Found) All() []netip.Addr {
	addresses := slices.Clone(f.Neighbours)
	for _, p := range f.Addresses {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}

// whole lists the addresses of full length: by the dataplane if it knows any, else by the pod.
func (f Found) whole() []netip.Addr {
	if len(f.Neighbours) > 0 {
		return f.Neighbours
	}
	var addresses []netip.Addr
	for _, p := range f.Addresses {
		if p.IsSingleIP() {
			addresses = append(addresses, p.Addr())
		}
	}
	return addresses
}

// reconstruction makes records of interfaces that were found on the machine without one.
type reconstruction struct {
	networks      *networks.Networks
	connections   connections
	defaultRoutes bool // main interfaces have default routes
}

// attachments returns the attachments of found interfaces, and the refused interfaces by object.
func (r *reconstruction) attachments(found []Found, lost []Found) ([]*pod.Attachment, map[string]error) {
	refused := make(map[string]error)
	for _, f := range lost {
		refused[f.Object] = errors.New("it was not read")
	}
	attachments := make(map[pod.Key]*pod.Attachment)
	for _, f := range slices.SortedFunc(slices.Values(found), mainFirst) {
		key, err := keyOf(f)
		if err == nil {
			err = refused[desired.ObjectName(key, key.IfName)]
		}
		a := attachments[key]
		if a == nil && err == nil {
			a = r.attachment(key, f)
		}
		if err == nil {
			err = r.add(f, a, slices.AppendSeq(r.connections.siblings(key, a.Netns), maps.Values(attachments)))
		}
		if err != nil {
			refused[f.Object] = err
			continue
		}
		attachments[key] = a
	}
	for _, f := range lost {
		delete(refused, f.Object)
	}
	for _, a := range attachments {
		r.addNetworkRoutes(a)
	}
	return slices.SortedFunc(maps.Values(attachments), func(a, b *pod.Attachment) int {
		return cmp.Compare(a.Key.String(), b.Key.String())
	}), refused
}

// mainFirst orders main interfaces before extra ones, then by name.
func mainFirst(a, b Found) int {
	isExtra := func(f Found) int { return strings.Count(f.Alias, "/") }
	return cmp.Or(cmp.Compare(isExtra(a), isExtra(b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Object, b.Object))
}

// attachment returns a copy of a known attachment, or a new one.
func (r *reconstruction) attachment(key pod.Key, f Found) *pod.Attachment {
	if c := r.connections[key]; c != nil {
		return newConnection(c.Attachment).Attachment
	}
	return &pod.Attachment{Key: key, Netns: f.Netns, Created: r.networks.Config.Now().UTC()}
}

// add adds an interface to its attachment. others may belong to the same sandbox.
func (r *reconstruction) add(f Found, a *pod.Attachment, others []*pod.Attachment) error {
	if f.Netns.Inode != a.Netns.Inode || f.Netns.Device != a.Netns.Device {
		return fmt.Errorf("link %s is in network namespace %s, and the attachment in %s", f.Name, f.Netns.Path,
			a.Netns.Path)
	}
	if !f.MAC.IsUnicast() || f.MTU <= 0 {
		return fmt.Errorf("link %s has MAC %q and MTU %d: Weft configured other values", f.Name, f.MAC, f.MTU)
	}
	if a.Pod.IsZero() {
		a.Pod = f.Pod
	}
	s := spec{
		name: f.Name,
		linkChoice: linkChoice{
			kind:   f.Type,
			object: f.Object,
			mac:    f.MAC,
			mtu:    f.MTU,
			queues: queues{rx: recordedQueues(f.RxQueues), tx: recordedQueues(f.TxQueues)},
		},
		network: networkNamed(pod.DefaultNetwork, r.networks),
		memif:   memifChoice{assigned: f.Memif},
		limits:  limitsOf(f.Policers),
	}
	isMain := f.Name == a.Key.IfName
	// the main interface of a delegate may be on any network
	isDelegates := f.Name != desired.RuntimesName && (len(f.Labels) > 0 || len(f.Neighbours) == 0)
	if !isMain || isDelegates {
		network, err := r.networkOf(f)
		if err != nil {
			return err
		}
		s.network = network
	}
	others = slices.DeleteFunc(others, func(o *pod.Attachment) bool { return o.Netns != a.Netns })
	s.routes = routeChoice{
		toNetwork: s.kind == pod.TypeMemif || !hasNetworkRoute(append(others, a), s.network.name),
		isDefault: r.defaultRoutes && isMain && f.Name == desired.RuntimesName,
	}
	leases, err := r.leases(s.network, f)
	if err != nil {
		return err
	}
	a.Interfaces = append(a.Interfaces, s.record(leases))
	return nil
}

// addNetworkRoutes adds the routes of the networks of an attachment. The routes that its options requested are not
// known any more.
func (r *reconstruction) addNetworkRoutes(a *pod.Attachment) {
	routing := &routing{interfaces: a.Interfaces, pods: networkNamed(pod.DefaultNetwork, r.networks)}
	for _, i := range a.Interfaces {
		routing.specs = append(routing.specs, spec{
			network: networkNamed(i.Network, r.networks),
			routes:  routeChoice{isDefault: r.defaultRoutes && i.Name == desired.RuntimesName},
		})
	}
	for at, s := range routing.specs {
		if s.network.custom == nil {
			continue
		}
		for _, q := range s.network.custom.Network.Routes {
			_ = routing.addOfNetwork(at, q) // as at the ADD, which had no such route either
		}
	}
}

// keyOf reads the attachment of an interface from its alias.
func keyOf(f Found) (pod.Key, error) {
	key, _, err := desired.ParseAlias(f.Alias)
	if err != nil {
		return pod.Key{}, err
	}
	if f.Alias != desired.AliasOf(key, f.Name) || desired.ObjectName(key, f.Name) != f.Object {
		return pod.Key{}, fmt.Errorf("link %s of %s has the alias of another interface: %q", f.Name, f.Object,
			f.Alias)
	}
	return key, nil
}

// networkOf finds the network of an interface by the label of its VRF or bridge domain.
func (r *reconstruction) networkOf(f Found) (network, error) {
	switch {
	case len(f.Labels) == 0 && len(f.Neighbours) == 0:
		return networkNamed(pod.StubNetwork, r.networks), nil
	case len(f.Labels) != 1:
		return network{}, fmt.Errorf("link %s is in %q: expected one network", f.Name, f.Labels)
	case f.Labels[0] == desired.PodsLabel:
		return networkNamed(pod.DefaultNetwork, r.networks), nil
	}
	for name, c := range r.networks.Customs() {
		if c.Label == f.Labels[0] {
			return networkNamed(name, r.networks), nil
		}
	}
	return network{}, fmt.Errorf("link %s is in %s, which belongs to no known network", f.Name, f.Labels[0])
}

// leases returns the addresses of a network that were allocated to an interface, IPv4 first.
func (r *reconstruction) leases(n network, f Found) ([]ipam.Lease, error) {
	switch {
	case n.name == "":
		return r.leasesOnDefault(f)
	case n.custom == nil:
		return nil, nil
	}
	var leases []ipam.Lease
	for _, p := range n.pools() {
		candidates := f.whole()
		if n.isBridged() {
			candidates = onLinkOf(f, p)
		}
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(a netip.Addr) bool {
			return !p.Prefix.Contains(a) || n.custom.Network.MovingAddresses().Contain(a) // it moves between pods
		})
		if len(candidates) != 1 {
			return nil, fmt.Errorf("link %s has addresses %v of %s: cannot tell which one was allocated", f.Name,
				candidates, p.Prefix)
		}
		leases = append(leases, ipam.Lease{Address: candidates[0], Pool: p.Name})
	}
	return leases, nil
}

// onLinkOf lists the addresses of the pod with the prefix length of a pool. A bridge domain has no addresses.
func onLinkOf(f Found, p netaddr.Pool) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range f.Addresses {
		if a.Bits() == p.Prefix.Bits() {
			addresses = append(addresses, a.Addr())
		}
	}
	return addresses
}

// leasesOnDefault returns the addresses of the network default that were allocated to an interface, IPv4 first.
func (r *reconstruction) leasesOnDefault(f Found) ([]ipam.Lease, error) {
	var leases []ipam.Lease
	for _, family := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		address, err := r.given(family, f.whole())
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", f.Name, err)
		}
		if address.IsValid() {
			leases = append(leases, ipam.Lease{Address: address, Pool: r.networks.Pools().Of(address)})
		}
	}
	if len(leases) == 0 {
		return nil, fmt.Errorf("link %s has no address", f.Name)
	}
	return leases, nil
}

// given returns the one address of a family that Weft can have allocated: an address of a pool, or, since pools change,
// the only address; not valid if there is no such address.
func (r *reconstruction) given(family netaddr.Family, addresses []netip.Addr) (netip.Addr, error) {
	var ofPools, all []netip.Addr
	for _, a := range addresses {
		if netaddr.FamilyOf(a) != family || a.IsLinkLocalUnicast() || a.IsLoopback() {
			continue
		}
		all = append(all, a)
		if r.networks.Pools().Of(a) != "" {
			ofPools = append(ofPools, a)
		}
	}
	if len(ofPools) > 0 {
		all = ofPools
	}
	switch len(all) {
	case 0:
		return netip.Addr{}, nil
	case 1:
		return all[0], nil
	}
	return netip.Addr{}, errors.New("several addresses of one family, and cannot tell which one was allocated: " +
		fmt.Sprint(all))
}
