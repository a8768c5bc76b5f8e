package linux

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

func addressDescriptor() kvscheduler.Descriptor[wire.LinuxAddress, Place] {
	return kvscheduler.Descriptor[wire.LinuxAddress, Place]{
		Name: wire.KindLinuxAddress, Lane: Lane,
		Equal:    func(want, have wire.LinuxAddress) bool { return want == have },
		Validate: validateAddress,
		Deps: func(_ string, v wire.LinuxAddress) []kvscheduler.Dep {
			return dependencies(refOf(v.On), kvscheduler.Exists, v.Namespace)
		},
		Recreate: func(have, want wire.LinuxAddress) bool { return true },
		Bucket:   func(_ string, v wire.LinuxAddress) string { return v.On },
		After:    []string{wire.KindNamespace, wire.KindTapPeer, wire.KindVeth},
		Backend: resident[wire.LinuxAddress]{
			kind:      wire.KindLinuxAddress,
			namespace: func(v wire.LinuxAddress) string { return v.Namespace },
			put:       addAddress,
			remove:    deleteAddress,
			find:      findAddress,
			list:      listAddresses,
			link:      func(v wire.LinuxAddress) string { return v.Link },
		},
	}
}

func validateAddress(name string, v wire.LinuxAddress) error {
	a := v.Prefix.Addr()
	if !v.Prefix.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("prefix %s is not an address of a link", v.Prefix)
	}
	return validateOn(v.On, v.Link, name, wire.LinuxAddressKey(v.On, v.Prefix))
}

// validateOn checks what all objects on a link share: the link, the link's object, and the key made of that.
func validateOn(on, link, name, key string) error {
	if _, err := kvscheduler.ParseRef(on); err != nil {
		return fmt.Errorf("object of the link: %w", err)
	}
	if r, _ := kvscheduler.ParseRef(key); r.Name != name {
		return fmt.Errorf("the value makes the name %s", r.Name)
	}
	return validateLink(link)
}

// refOf reads a key that validateOn has seen.
func refOf(key string) kvscheduler.Ref {
	r, _ := kvscheduler.ParseRef(key)
	return r
}

func addAddress(h *handle, _ string, v wire.LinuxAddress) error {
	l, err := h.linkFor(v.Link, v.Prefix.Addr())
	if err != nil {
		return refused(err)
	}
	err = h.AddrAdd(l, kernelAddress(v.Prefix))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return refused(fmt.Errorf("add address %s to %s: %w", v.Prefix, v.Link, err))
	}
	if v.Prefix.Addr().Is6() {
		h.awaitTaken(v.Prefix.Addr())
	}
	return nil
}

// longestTaking is how long the kernel may take until it takes what is for a new address; a worker of its does that, most often
// in less than a millisecond.
const longestTaking = 2 * time.Second

// awaitTaken returns when the kernel takes what is for an IPv6 address. It says that the address is there before that, and drops
// meanwhile what comes for it: a pod's first answers would be lost. Where that takes too long, the address is there all the same.
func (h *handle) awaitTaken(a netip.Addr) {
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Dst: ipNet(netip.PrefixFrom(a, a.BitLen()))}
	for over := time.Now().Add(longestTaking); time.Now().Before(over); <-time.After(100 * time.Microsecond) {
		routes, err := whole(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		})
		if err != nil || len(routes) > 0 {
			return
		}
	}
}

// linkFor finds a link that is to get something of the family of a.
func (h *handle) linkFor(name string, a netip.Addr) (netlink.Link, error) {
	l, err := h.link(name)
	if err == nil && a.Is6() {
		err = enableIPv6(name)
	}
	return l, err
}

// enableIPv6 undoes for one link what runtimes do to whole namespaces. It runs on a thread inside the link's.
func enableIPv6(link string) error {
	path := "/proc/sys/net/ipv6/conf/" + link + "/disable_ipv6"
	if now, err := os.ReadFile(path); err == nil && len(now) > 0 && now[0] == '0' {
		return nil
	}
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		return fmt.Errorf("enable IPv6 on %s: %w", link, err)
	}
	return nil
}

func deleteAddress(h *handle, v wire.LinuxAddress) error {
	l, err := h.link(v.Link)
	if err != nil {
		return err
	}
	lost, err := h.lostWith(l, v.Prefix)
	if err == nil {
		err = h.AddrDel(l, kernelAddress(v.Prefix))
	}
	return errors.Join(err, h.restore(lost))
}

// onLink are static entries of a link.
type onLink struct {
	neighbours []netlink.Neigh
	routes     []netlink.Route
}

// lostWith lists what the kernel takes off a link with its last IPv4 address, though it was not made for that address: static
// neighbours, and our routes that have another source or none.
func (h *handle) lostWith(l netlink.Link, p netip.Prefix) (lost onLink, err error) {
	if p.Addr().Is6() {
		return lost, nil
	}
	addresses, err := whole(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_V4) })
	if err != nil || len(addresses) != 1 || prefixOf(addresses[0].IPNet) != p {
		return lost, err
	}
	neighbours, err := whole(func() ([]netlink.Neigh, error) { return h.NeighList(l.Attrs().Index, netlink.FAMILY_V4) })
	if err != nil {
		return lost, err
	}
	filter := &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: protocol}
	routes, err := whole(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	})
	for _, n := range neighbours {
		if n.State&netlink.NUD_PERMANENT != 0 {
			lost.neighbours = append(lost.neighbours, n)
		}
	}
	for _, r := range routes {
		if addrOf(r.Src) != p.Addr() {
			lost.routes = append(lost.routes, r)
		}
	}
	return lost, err
}

// restore puts back what is not there any more.
func (h *handle) restore(lost onLink) (err error) {
	for _, n := range lost.neighbours {
		err = errors.Join(err, h.NeighSet(&n))
	}
	for _, r := range lost.routes {
		r.Flags &= int(netlink.FLAG_ONLINK) // the others are states, which cannot be set
		if e := h.RouteAdd(&r); !errors.Is(e, unix.EEXIST) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func findAddress(h *handle, _ string, v wire.LinuxAddress) (wire.LinuxAddress, bool, error) {
	l, err := h.link(v.Link)
	if err != nil {
		return v, false, err
	}
	list, err := whole(func() ([]netlink.Addr, error) { return h.AddrList(l, family(v.Prefix.Addr().Is4())) })
	for _, a := range list {
		if prefixOf(a.IPNet) == v.Prefix {
			return v, true, err
		}
	}
	return v, false, err
}

// listAddresses leaves out the link-local ones, which the kernel makes by itself.
func listAddresses(h *handle, v wire.LinuxAddress) (map[string]wire.LinuxAddress, error) {
	l, ours, err := h.nodeLink(v.Link)
	if err != nil || !ours {
		return nil, err
	}
	list, err := whole(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_ALL) })
	found := map[string]wire.LinuxAddress{}
	for _, a := range list {
		if a.Scope == unix.RT_SCOPE_UNIVERSE {
			v.Prefix = prefixOf(a.IPNet)
			found[refOf(wire.LinuxAddressKey(v.On, v.Prefix)).Name] = v
		}
	}
	return found, err
}

// kernelAddress skips duplicate address detection: the dataplane is the only neighbour, and a pod cannot wait for it.
func kernelAddress(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipNet(p)}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf is the inverse of ipNet; the zero prefix for nil.
func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), bits)
}

// addrOf returns the zero Addr for an invalid IP.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// family is netlink's word for that of an address.
func family(is4 bool) int {
	if is4 {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// addressRange is all addresses from one to another, of one family. It may end at the family's highest.
type addressRange struct{ first, last netip.Addr }

// rangesOf are the ranges of one family that prefixes cover: in order, apart from each other by an address at least.
func rangesOf(prefixes []netip.Prefix, is4 bool) []addressRange {
	var all []addressRange
	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			all = append(all, addressRange{p.Addr(), lastOf(p)})
		}
	}
	slices.SortFunc(all, func(a, b addressRange) int { return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last)) })
	var merged []addressRange
	for _, r := range all {
		end := len(merged) - 1
		if end < 0 || merged[end].last.Next().IsValid() && merged[end].last.Next().Less(r.first) {
			merged = append(merged, r)
		} else if merged[end].last.Less(r.last) {
			merged[end].last = r.last
		}
	}
	return merged
}

// lastOf is the highest address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(raw) // it has the length of an address
	return last
}

// prefixes are the fewest that cover just the range.
func (r addressRange) prefixes() (list []netip.Prefix) {
	for at := r.first; at.IsValid() && !r.last.Less(at); {
		p := netip.PrefixFrom(at, at.BitLen())
		for p.Bits() > 0 {
			wider := netip.PrefixFrom(at, p.Bits()-1)
			if wider.Masked().Addr() != at || r.last.Less(lastOf(wider)) {
				break
			}
			p = wider
		}
		list = append(list, p)
		at = lastOf(p).Next()
	}
	return list
}

func neighbourDescriptor() kvscheduler.Descriptor[wire.LinuxNeighbour, Place] {
	return kvscheduler.Descriptor[wire.LinuxNeighbour, Place]{
		Name: wire.KindLinuxNeighbour, Lane: Lane,
		Equal:    func(want, have wire.LinuxNeighbour) bool { return want == have },
		Validate: validateNeighbour,
		Deps: func(_ string, v wire.LinuxNeighbour) []kvscheduler.Dep {
			return dependencies(refOf(v.On), kvscheduler.Follow, v.Namespace)
		},
		Recreate: func(have, want wire.LinuxNeighbour) bool {
			return have.Namespace != want.Namespace || have.Link != want.Link
		},
		After: []string{wire.KindNamespace, wire.KindTapPeer, wire.KindVeth},
		Backend: resident[wire.LinuxNeighbour]{
			kind:      wire.KindLinuxNeighbour,
			namespace: func(v wire.LinuxNeighbour) string { return v.Namespace },
			put:       setNeighbour,
			remove:    deleteNeighbour,
			find:      findNeighbour,
			list:      listNeighbours,
			link:      func(v wire.LinuxNeighbour) string { return v.Link },
		},
	}
}

func validateNeighbour(name string, v wire.LinuxNeighbour) error {
	switch {
	case !v.Address.IsValid() || v.Address.Is4In6() || v.Address.IsUnspecified() || v.Address.IsMulticast() || v.Address.Zone() != "":
		return fmt.Errorf("address %s is not that of a neighbour", v.Address)
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	}
	return validateOn(v.On, v.Link, name, wire.LinuxNeighbourKey(v.On, v.Address))
}

// setNeighbour also replaces what the kernel has learned.
func setNeighbour(h *handle, _ string, v wire.LinuxNeighbour) error {
	l, err := h.linkFor(v.Link, v.Address)
	if err == nil {
		err = h.NeighSet(kernelNeighbour(l, v))
	}
	if err != nil {
		return refused(fmt.Errorf("set neighbour %s of %s: %w", v.Address, v.Link, err))
	}
	return nil
}

func deleteNeighbour(h *handle, v wire.LinuxNeighbour) error {
	l, err := h.link(v.Link)
	if err != nil {
		return err
	}
	return h.NeighDel(kernelNeighbour(l, v))
}

func findNeighbour(h *handle, _ string, v wire.LinuxNeighbour) (wire.LinuxNeighbour, bool, error) {
	l, err := h.link(v.Link)
	if err != nil {
		return v, false, err
	}
	list, err := whole(func() ([]netlink.Neigh, error) { return h.NeighList(l.Attrs().Index, family(v.Address.Is4())) })
	for _, n := range list {
		if addrOf(n.IP) == v.Address && n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) == len(v.MAC) {
			v.MAC = wire.MAC(n.HardwareAddr)
			return v, true, err
		}
	}
	return v, false, err
}

// listNeighbours lists those that the kernel did not learn.
func listNeighbours(h *handle, v wire.LinuxNeighbour) (map[string]wire.LinuxNeighbour, error) {
	l, ours, err := h.nodeLink(v.Link)
	if err != nil || !ours {
		return nil, err
	}
	list, err := whole(func() ([]netlink.Neigh, error) { return h.NeighList(l.Attrs().Index, netlink.FAMILY_ALL) })
	found := map[string]wire.LinuxNeighbour{}
	for _, n := range list {
		if n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) == len(v.MAC) {
			v.Address, v.MAC = addrOf(n.IP), wire.MAC(n.HardwareAddr)
			found[refOf(wire.LinuxNeighbourKey(v.On, v.Address)).Name] = v
		}
	}
	return found, err
}

func kernelNeighbour(l netlink.Link, v wire.LinuxNeighbour) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: l.Attrs().Index, Family: family(v.Address.Is4()), State: netlink.NUD_PERMANENT,
		IP: v.Address.AsSlice(), HardwareAddr: v.MAC[:],
	}
}
