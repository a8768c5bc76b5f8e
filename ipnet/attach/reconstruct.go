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

// Found is an interface that was found on the machine when what was kept of it is lost.
type Found struct {
	Object     string    // name in the dataplane
	Type       string    // pod.TypeTap, pod.TypeVeth or pod.TypeMemif
	Labels     []string  // of what the interface is in, in the dataplane
	Netns      pod.Netns // that its Linux end is in
	Name       string    // of the Linux end
	Alias      string    // of the Linux end
	MAC        wire.MAC  // of the Linux end
	MTU        int       // bytes
	RxQueues   int       // of the Linux end
	TxQueues   int
	Neighbours []netip.Addr   // that the dataplane knows there: the addresses that were given to the Linux end
	Memif      *pod.Memif     // of a memif, whose Linux end is its program
	Pod        pod.ID         // if that is known
	Addresses  []netip.Prefix // of the Linux end; asked where there are no neighbours, for the pod may have changed them
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

// Reconstruct makes the attachments of interfaces anew, or, of those that are known, what they lack: as they were, but for
// what the machine does not know. That is the pod's name unless it has memifs, its annotations, when it was added, which is now, and in which
// order it asked for its extra interfaces, which is now that of their names. Restore then takes the attachments over. What
// it cannot be sure of it refuses, by object; so it does with extra interfaces where the main one, lost or refused, is not
// known.
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
			err = ps.reconstruct(f, a, slices.AppendSeq(ps.besides(key, a.Netns), maps.Values(attachments)))
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

// mainFirst orders by name what belongs to attachments, behind their main interfaces.
func mainFirst(a, b Found) int {
	isExtra := func(f Found) int { return strings.Count(f.Alias, "/") }
	return cmp.Or(cmp.Compare(isExtra(a), isExtra(b)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Object, b.Object))
}

// reconstructed is what is known of an attachment.
func (ps *Pods) reconstructed(key pod.Key, f Found) *pod.Attachment {
	if c := ps.wired[key]; c != nil {
		return newConnection(c.Attachment).Attachment
	}
	return &pod.Attachment{Key: key, Netns: f.Netns, Created: ps.networks.Config.Now().UTC()}
}

// reconstruct adds an interface to its attachment. others are those that may be of the same sandbox.
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
	delegates := f.Name != desired.RuntimesName && (len(f.Labels) > 0 || len(f.Neighbours) == 0) // and may be of any network too
	if f.Name != a.Key.IfName || delegates {
		if err := ps.locate(&s, f); err != nil {
			return err
		}
	}
	s.defaults = !ps.config.NoDefaultRoutes && f.Name == a.Key.IfName && f.Name == desired.RuntimesName
	others = slices.DeleteFunc(others, func(o *pod.Attachment) bool { return o.Netns != a.Netns })
	s.leads = s.kind == pod.TypeMemif || !leads(append(others, a), s.network)
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

// locate says which network an extra interface is on.
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

// leasesFound are the addresses that were given to an interface, IPv4 first.
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

// onLinkOf are the addresses of the length of a pool. A bridge domain knows none, so that there is only the pod to ask.
func onLinkOf(f Found, p ipam.Pool) []netip.Addr {
	var addresses []netip.Addr
	for _, a := range f.Addresses {
		if a.Bits() == p.Prefix.Bits() {
			addresses = append(addresses, a.Addr())
		}
	}
	return addresses
}

// leased are the addresses of the network default that were given to an interface, IPv4 first.
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

// given is the one address of a family that can be ours: one of a pool, or, since pools change, the only one; not valid
// if there is none.
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
