package attach

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Found is an interface of the machine whose record is lost.
type Found struct {
	Object     string    // name in the dataplane
	Type       string    // pod.TypeTap, pod.TypeVeth or pod.TypeMemif
	Labels     []string  // of its VRF or bridge domain in the dataplane
	Netns      pod.Netns // of the Linux end
	Name       string    // of the Linux end
	Alias      string    // of the Linux end
	MAC        wire.MAC  // of the Linux end
	MTU        int       // bytes
	RxQueues   int       // of the Linux end
	TxQueues   int
	Neighbours []netip.Addr   // of the dataplane: the addresses that were allocated to the Linux end
	Memif      *pod.Memif     // of a memif, whose other end is a program
	Pod        pod.ID         // if known
	Addresses  []netip.Prefix // of the Linux end; used without Neighbours only, because the pod may have changed them
}

// All lists every address that the interface may have.
func (f Found) All() []netip.Addr {
	addresses := slices.Clone(f.Neighbours)
	for _, p := range f.Addresses {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}

// whole lists the addresses of full length: those of the dataplane if it knows any, else those of the pod.
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

// Reconstruct returns attachments for interfaces without a record, or adds missing interfaces to known attachments. The machine does not
// know the name of a pod without memifs, its annotations, the time of its ADD (now), and the order of its extra interfaces (that of their
// names). Restore adopts the attachments. Reconstruct refuses, by object, an ambiguous interface, and extra interfaces whose main
// interface is lost or refused.
func (ps *Pods) Reconstruct(found []Found, lost []Found) ([]*pod.Attachment, map[string]error) {
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
			a = ps.reconstructed(key, f)
		}
		if err == nil {
			err = ps.reconstruct(f, a, slices.AppendSeq(ps.siblings(key, a.Netns), maps.Values(attachments)))
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
	return slices.SortedFunc(maps.Values(attachments), func(a, b *pod.Attachment) int { return cmp.Compare(a.Key.String(), b.Key.String()) }), refused
}

// mainFirst orders main interfaces before extra ones, then by name.
func mainFirst(a, b Found) int {
	isExtra := func(f Found) int { return strings.Count(f.Alias, "/") }
	return cmp.Or(cmp.Compare(isExtra(a), isExtra(b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Object, b.Object))
}

// reconstructed returns a copy of a known attachment, or a new one.
func (ps *Pods) reconstructed(key pod.Key, f Found) *pod.Attachment {
	if c := ps.wired[key]; c != nil {
		return newConnection(c.Attachment).Attachment
	}
	return &pod.Attachment{Key: key, Netns: f.Netns, Created: ps.networks.Config.Now().UTC()}
}

// reconstruct adds an interface to its attachment. others may belong to the same sandbox.
func (ps *Pods) reconstruct(f Found, a *pod.Attachment, others []*pod.Attachment) error {
	if f.Netns.Inode != a.Netns.Inode || f.Netns.Device != a.Netns.Device {
		return fmt.Errorf("link %s is in network namespace %s, and the attachment in %s", f.Name, f.Netns.Path, a.Netns.Path)
	}
	if !f.MAC.IsUnicast() || f.MTU <= 0 {
		return fmt.Errorf("link %s has MAC %q and MTU %d: not what was given to it", f.Name, f.MAC, f.MTU)
	}
	if a.Pod.IsZero() {
		a.Pod = f.Pod
	}
	s := spec{name: f.Name, kind: f.Type, object: f.Object, mac: f.MAC, mtu: f.MTU, memif: f.Memif}
	s.rxQueues, s.txQueues = several(f.RxQueues), several(f.TxQueues)
	delegates := f.Name != desired.RuntimesName && (len(f.Labels) > 0 || len(f.Neighbours) == 0) // which may be on any network
	if f.Name != a.Key.IfName || delegates {
		if err := ps.locate(&s, f); err != nil {
			return err
		}
	}
	s.defaults = !ps.config.NoDefaultRoutes && f.Name == a.Key.IfName && f.Name == desired.RuntimesName
	others = slices.DeleteFunc(others, func(o *pod.Attachment) bool { return o.Netns != a.Netns })
	s.leads = s.kind == pod.TypeMemif || !hasNetworkRoute(append(others, a), s.network)
	leases, err := ps.leasesFound(s, f)
	if err != nil {
		return err
	}
	a.Interfaces = append(a.Interfaces, ps.interfaceOf(s, leases))
	return nil
}

// keyOf reads the attachment of an interface from its alias.
func keyOf(f Found) (pod.Key, error) {
	key, _, err := desired.ParseAlias(f.Alias)
	if err != nil {
		return pod.Key{}, err
	}
	if f.Alias != desired.AliasOf(key, f.Name) || desired.ObjectName(key, f.Name) != f.Object {
		return pod.Key{}, fmt.Errorf("link %s of %s bears the alias of another interface: %q", f.Name, f.Object, f.Alias)
	}
	return key, nil
}

// locate finds the network of an extra interface.
func (ps *Pods) locate(s *spec, f Found) error {
	switch {
	case len(f.Labels) == 0 && len(f.Neighbours) == 0:
		s.network = pod.StubNetwork
		return nil
	case len(f.Labels) != 1:
		return fmt.Errorf("link %s is in %q: one network is possible", f.Name, f.Labels)
	case f.Labels[0] == desired.PodsLabel:
		return nil
	}
	for name, c := range ps.networks.Customs() {
		if c.Label == f.Labels[0] {
			s.network, s.custom = name, c
			return nil
		}
	}
	return fmt.Errorf("link %s is in %s, which is of no network that is known", f.Name, f.Labels[0])
}

// leasesFound returns the addresses that were allocated to an interface, IPv4 first.
func (ps *Pods) leasesFound(s spec, f Found) ([]ipam.Lease, error) {
	switch {
	case s.network == "":
		return ps.leased(f)
	case s.custom == nil:
		return nil, nil
	}
	var leases []ipam.Lease
	for _, p := range s.custom.Pools() {
		candidates := f.whole()
		if s.custom.Network.Type == pod.L2 {
			candidates = onLinkOf(f, p)
		}
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(a netip.Addr) bool { return !p.Prefix.Contains(a) })
		if len(candidates) != 1 {
			return nil, fmt.Errorf("link %s has addresses %v of %s: no telling which of them was given", f.Name, candidates, p.Prefix)
		}
		leases = append(leases, ipam.Lease{Address: candidates[0], Pool: p.Name})
	}
	return leases, nil
}

// onLinkOf lists the addresses of the pod with the prefix length of a pool. A bridge domain has no addresses.
func onLinkOf(f Found, p ipam.Pool) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range f.Addresses {
		if a.Bits() == p.Prefix.Bits() {
			addresses = append(addresses, a.Addr())
		}
	}
	return addresses
}

// leased returns the addresses of the network default that were allocated to an interface, IPv4 first.
func (ps *Pods) leased(f Found) ([]ipam.Lease, error) {
	var leases []ipam.Lease
	for _, family := range []wire.Family{wire.IP4, wire.IP6} {
		address, err := ps.given(family, f.whole())
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", f.Name, err)
		}
		if address.IsValid() {
			leases = append(leases, ipam.Lease{Address: address, Pool: ps.networks.Pools().Of(address)})
		}
	}
	if len(leases) == 0 {
		return nil, fmt.Errorf("link %s has no address", f.Name)
	}
	return leases, nil
}

// given returns the one address of a family that Weft can have allocated: an address of a pool, or, since pools change, the only address;
// not valid if there is none.
func (ps *Pods) given(family wire.Family, addresses []netip.Addr) (netip.Addr, error) {
	var ofPools, all []netip.Addr
	for _, a := range addresses {
		if wire.FamilyOf(a) != family || a.IsLinkLocalUnicast() || a.IsLoopback() {
			continue
		}
		all = append(all, a)
		if ps.networks.Pools().Of(a) != "" {
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
	return netip.Addr{}, errors.New("several addresses of one family, and no telling which of them was given: " + fmt.Sprint(all))
}
