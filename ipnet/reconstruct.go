package ipnet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

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

// whole are the addresses of the whole length, by the more trustworthy witness.
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
func (n *Network) Reconstruct(found []Found, lost []Found) ([]*pod.Attachment, map[string]error) {
	refused := make(map[string]error)
	for _, f := range lost {
		refused[f.Object] = errors.New("it was not read")
	}
	attachments := make(map[pod.Key]*pod.Attachment)
	for _, f := range slices.SortedFunc(slices.Values(found), mainFirst) {
		key, err := keyOf(f)
		if err == nil {
			err = refused[objectName(key, key.IfName)]
		}
		a := attachments[key]
		if a == nil && err == nil {
			a = n.reconstructed(key, f)
		}
		if err == nil {
			err = n.reconstruct(f, a, slices.AppendSeq(n.besides(key, a.Netns), maps.Values(attachments)))
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
func (n *Network) reconstructed(key pod.Key, f Found) *pod.Attachment {
	if c := n.wired[key]; c != nil {
		return newConnection(c.Attachment).Attachment
	}
	return &pod.Attachment{Key: key, Netns: f.Netns, Created: n.config.Now().UTC()}
}

// reconstruct adds an interface to its attachment. others are those that may be of the same sandbox.
func (n *Network) reconstruct(f Found, a *pod.Attachment, others []*pod.Attachment) error {
	if f.Netns.Inode != a.Netns.Inode || f.Netns.Device != a.Netns.Device {
		return fmt.Errorf("link %s is in network namespace %s, and the attachment in %s", f.Name, f.Netns.Path, a.Netns.Path)
	}
	if !f.MAC.IsUnicast() || f.MTU <= 0 {
		return fmt.Errorf("link %s has MAC %q and MTU %d: not what was given to it", f.Name, f.MAC, f.MTU)
	}
	if a.Pod.IsZero() {
		a.Pod = f.Pod
	}
	w := wish{name: f.Name, kind: f.Type, object: f.Object, mac: f.MAC, mtu: f.MTU, memif: f.Memif}
	w.rxQueues, w.txQueues = several(f.RxQueues), several(f.TxQueues)
	delegates := f.Name != runtimesName && (len(f.Labels) > 0 || len(f.Neighbours) == 0) // and may be of any network too
	if f.Name != a.Key.IfName || delegates {
		if err := n.locate(&w, f); err != nil {
			return err
		}
	}
	w.defaults = !n.config.NoDefaultRoutes && f.Name == a.Key.IfName && f.Name == runtimesName
	others = slices.DeleteFunc(others, func(o *pod.Attachment) bool { return o.Netns != a.Netns })
	w.leads = w.kind == pod.TypeMemif || !leads(append(others, a), w.network)
	leases, err := n.leasesFound(w, f)
	if err != nil {
		return err
	}
	a.Interfaces = append(a.Interfaces, n.interfaceOf(w, leases))
	return nil
}

// VethObject returns the name of the dataplane's interface that the veth of a pod or of the tunnels belongs to, from the name and
// the alias of the end that the dataplane has; ok is false for any other link. The alias of a long name is a hash, which does not
// tell.
func VethObject(host, alias string) (object, ifName string, ok bool) {
	if alias == tunnelAlias {
		return tunnelObject, usualTunnelLink, host == hostName(tunnelObject)
	}
	key, ifName, err := parseAlias(alias)
	if err != nil {
		return "", "", false
	}
	object = objectName(key, ifName)
	return object, ifName, host == hostName(object)
}

// parseAlias is the inverse of aliasOf.
func parseAlias(alias string) (key pod.Key, ifName string, err error) {
	text, ours := strings.CutPrefix(alias, wire.AliasPrefix)
	parts := strings.Split(text, "/")
	if !ours || len(parts) < 3 || len(parts) > 4 || slices.Contains(parts, "") {
		return pod.Key{}, "", fmt.Errorf("alias %q does not name an attachment", alias)
	}
	return pod.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}, parts[len(parts)-1], nil
}

// keyOf reads the attachment of an interface from its alias.
func keyOf(f Found) (pod.Key, error) {
	key, _, err := parseAlias(f.Alias)
	if err != nil {
		return pod.Key{}, err
	}
	if f.Alias != aliasOf(key, f.Name) || objectName(key, f.Name) != f.Object {
		return pod.Key{}, fmt.Errorf("link %s of %s bears the alias of another interface: %q", f.Name, f.Object, f.Alias)
	}
	return key, nil
}

// locate says which network an extra interface is on.
func (n *Network) locate(w *wish, f Found) error {
	switch {
	case len(f.Labels) == 0 && len(f.Neighbours) == 0:
		w.network = pod.StubNetwork
		return nil
	case len(f.Labels) != 1:
		return fmt.Errorf("link %s is in %q: one network is possible", f.Name, f.Labels)
	case f.Labels[0] == podVRF:
		return nil
	}
	for name, c := range n.customNetworks() {
		if c.label == f.Labels[0] {
			w.network, w.custom = name, c
			return nil
		}
	}
	return fmt.Errorf("link %s is in %s, which is of no network that is known", f.Name, f.Labels[0])
}

// leasesFound are the addresses that were given to an interface, IPv4 first.
func (n *Network) leasesFound(w wish, f Found) ([]ipam.Lease, error) {
	switch {
	case w.network == "":
		return n.leased(f)
	case w.custom == nil:
		return nil, nil
	}
	var leases []ipam.Lease
	for _, p := range w.custom.pools() {
		candidates := f.whole()
		if w.custom.Network.Type == pod.L2 {
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
func (n *Network) leased(f Found) ([]ipam.Lease, error) {
	var leases []ipam.Lease
	for _, family := range []wire.Family{wire.IP4, wire.IP6} {
		address, err := n.given(family, f.whole())
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", f.Name, err)
		}
		if address.IsValid() {
			leases = append(leases, ipam.Lease{Address: address, Pool: n.poolOf(address)})
		}
	}
	if len(leases) == 0 {
		return nil, fmt.Errorf("link %s has no address", f.Name)
	}
	return leases, nil
}

// given is the one address of a family that can be ours: one of a pool, or, since pools change, the only one; not valid
// if there is none.
func (n *Network) given(family wire.Family, addresses []netip.Addr) (netip.Addr, error) {
	var ofPools, all []netip.Addr
	for _, a := range addresses {
		if wire.FamilyOf(a) != family || a.IsLinkLocalUnicast() || a.IsLoopback() {
			continue
		}
		all = append(all, a)
		if n.poolOf(a) != "" {
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

// Numbers are those that the dataplane has, by label.
type Numbers struct{ Tables, BridgeDomains map[string]uint32 }

// Recognise takes over the networks that are not known and that stand in the dataplane as they are wanted, with the
// numbers that they have there, and gives what is to be kept of them. The dataplane knows no VNI: one that was not chosen
// is given anew. What stands otherwise is not recognised.
func (n *Network) Recognise(wanted []pod.Network, there Numbers) []SavedNetwork {
	taken := make(map[uint32]bool)
	for _, c := range n.customNetworks() {
		taken[c.VNI] = true
	}
	for _, w := range wanted {
		taken[w.VNI] = true
	}
	var recognised []SavedNetwork
	for _, w := range slices.SortedFunc(slices.Values(wanted), chosenVNIFirst) {
		if n.custom(w.Name) != nil || sound(w) != nil {
			continue
		}
		s, err := n.recognise(ordered(w), there, taken)
		if errors.Is(err, errNew) {
			continue
		}
		if err != nil {
			n.config.Log.Warn("network not recognised in the dataplane", "network", w.Name, "err", err)
			continue
		}
		taken[s.VNI] = true
		recognised = append(recognised, s)
	}
	n.restoreNetworks(recognised)
	return slices.DeleteFunc(recognised, func(s SavedNetwork) bool { return n.custom(s.Network.Name) == nil })
}

// errNew means that the dataplane has nothing of a network.
var errNew = errors.New("nothing of it is there")

func (n *Network) recognise(w pod.Network, there Numbers, taken map[uint32]bool) (s SavedNetwork, err error) {
	label := labelOf(w.Name)
	s = SavedNetwork{Network: w, Table: there.Tables[label], BridgeDomain: there.BridgeDomains[label], VNI: w.VNI}
	needsTable, needsBridge := n.config.numbered(w)
	if (needsTable || w.Type == pod.L2) && s.Table == 0 && s.BridgeDomain == 0 {
		return s, errNew
	}
	if needsTable != (s.Table != 0) || (w.Type == pod.L2) != (s.BridgeDomain != 0) {
		return s, fmt.Errorf("it has VRF table %d and bridge domain %d there", s.Table, s.BridgeDomain)
	}
	if needsBridge && w.Type == pod.L3 { // none there: it is numbered when it is set
		s.BridgeDomain = there.BridgeDomains[meshLabelOf(w.Name)]
	}
	if s.VNI == 0 {
		s.VNI, err = n.config.VNIs.lowest("VNI", taken)
	}
	return s, err
}
