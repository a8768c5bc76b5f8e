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

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

func addressDescriptor(overfull *Overfull) kvscheduler.Descriptor[wire.LinuxAddress, netnsID] {
	at := func(v wire.LinuxAddress) (on, namespace string) { return v.On, v.Namespace }
	d := onLink(kvscheduler.Exists, at, namespaced[wire.LinuxAddress]{
		kind:   wire.KindLinuxAddress,
		put:    addAddress,
		remove: deleteAddress,
		find:   findAddress,
		list:   listAddresses,
		link:   func(v wire.LinuxAddress) string { return v.Link },

		needsIPv6: func(v wire.LinuxAddress) bool { return v.Prefix.Addr().Is6() },
		overfull:  overfull,
	})
	d.Validate = validateAddress
	d.Recreate = always
	d.Bucket = func(_ string, v wire.LinuxAddress) string { return v.On }
	return d
}

func validateAddress(name string, v wire.LinuxAddress) error {
	a := v.Prefix.Addr()
	if !v.Prefix.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsMulticast() {
		return fmt.Errorf("prefix %s is not a unicast address", v.Prefix)
	}
	return validateOn(v.On, v.Link, name, wire.LinuxAddressKey(v.On, v.Prefix))
}

// validateOn checks the fields that all objects on a link share: the link, its object, and the name derived from the
// value.
func validateOn(on, link, name, key string) error {
	if _, err := kvscheduler.ParseRef(on); err != nil {
		return fmt.Errorf("key of the link's object: %w", err)
	}
	if derived := parseRef(key).Name; derived != name {
		return fmt.Errorf("name %s does not match the value, expected %s", name, derived)
	}
	return validateLink(link)
}

// parseRef parses a key that is known to be valid.
func parseRef(key string) kvscheduler.Ref {
	r, _ := kvscheduler.ParseRef(key)
	return r
}

func addAddress(h *handle, v wire.LinuxAddress) error {
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
		h.awaitLocalRoute(v.Prefix.Addr())
	}
	return nil
}

// localRouteTimeout bounds the wait for the local route of a new IPv6 address. A kernel worker adds it, mostly within 1
// ms.
const localRouteTimeout = 2 * time.Second

// awaitLocalRoute waits for the local route of an IPv6 address, or until the timeout. The kernel confirms a new address
// earlier, and drops packets to it until it has the route: a pod would lose its first replies.
func (s *socket) awaitLocalRoute(a netip.Addr) {
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Dst: ipNet(netaddr.Single(a))}
	for deadline := time.Now().Add(localRouteTimeout); time.Now().Before(
		deadline); <-time.After(100 * time.Microsecond) {
		routes, err := s.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_DST)
		if err != nil || len(routes) > 0 {
			return
		}
	}
}

// linkFor finds a link and prepares it for addresses of the family of a.
func (h *handle) linkFor(name string, a netip.Addr) (netlink.Link, error) {
	l, err := h.link(name)
	if err == nil && a.Is6() {
		err = enableIPv6(name)
	}
	return l, err
}

// enableIPv6 enables IPv6 on one link: some runtimes disable it in a whole namespace. It runs on a thread in that
// namespace.
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
	flushed, err := h.flushedWith(l, v.Prefix)
	if errors.Is(err, errOverfull) { // what the pod filled is not put in order; its address is deleted
		flushed = linkEntries{}
		err = nil
	}
	if err == nil {
		err = h.AddrDel(l, kernelAddress(v.Prefix))
	}
	return errors.Join(err, h.restore(flushed))
}

// linkEntries are static neighbours and routes of a link.
type linkEntries struct {
	neighbours []netlink.Neigh
	routes     []netlink.Route
}

// flushedWith lists the entries that the kernel flushes with the last IPv4 address of a link but that do not depend on
// it: static neighbours, and Weft's routes with another source or none.
func (s *socket) flushedWith(l netlink.Link, p netip.Prefix) (flushed linkEntries, err error) {
	if p.Addr().Is6() {
		return flushed, nil
	}
	addresses, err := s.AddrList(l, netlink.FAMILY_V4)
	if err != nil || len(addresses) != 1 || prefixOf(addresses[0].IPNet) != p {
		return flushed, err
	}
	neighbours, err := s.NeighList(l.Attrs().Index, netlink.FAMILY_V4)
	if err != nil {
		return flushed, err
	}
	filter := &netlink.Route{LinkIndex: l.Attrs().Index, Protocol: protocol}
	routes, err := s.RouteListFiltered(netlink.FAMILY_V4, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_PROTOCOL)
	for _, n := range neighbours {
		if n.State&netlink.NUD_PERMANENT != 0 {
			flushed.neighbours = append(flushed.neighbours, n)
		}
	}
	for _, r := range routes {
		if addrOf(r.Src) != p.Addr() {
			flushed.routes = append(flushed.routes, r)
		}
	}
	return flushed, err
}

// restore adds missing entries.
func (s *socket) restore(entries linkEntries) (err error) {
	for _, n := range entries.neighbours {
		err = errors.Join(err, s.NeighSet(&n))
	}
	for _, r := range entries.routes {
		r.Flags &= int(netlink.FLAG_ONLINK) // the other flags are states, which cannot be set
		if e := s.RouteAdd(&r); !errors.Is(e, unix.EEXIST) {
			err = errors.Join(err, e)
		}
	}
	return err
}

func findAddress(h *handle, v wire.LinuxAddress) (wire.LinuxAddress, bool, error) {
	l, err := h.link(v.Link)
	if err != nil {
		return v, false, err
	}
	list, err := h.AddrList(l, family(v.Prefix.Addr().Is4()))
	for _, a := range list {
		if prefixOf(a.IPNet) == v.Prefix {
			return v, true, err
		}
	}
	return v, false, err
}

// listAddresses skips link-local addresses, which the kernel makes itself.
func listAddresses(h *handle, l netlink.Link, v wire.LinuxAddress) (map[string]wire.LinuxAddress, error) {
	list, err := h.AddrList(l, netlink.FAMILY_ALL)
	found := map[string]wire.LinuxAddress{}
	for _, a := range list {
		if a.Scope == unix.RT_SCOPE_UNIVERSE {
			v.Prefix = prefixOf(a.IPNet)
			found[parseRef(wire.LinuxAddressKey(v.On, v.Prefix)).Name] = v
		}
	}
	return found, err
}

// kernelAddress disables duplicate address detection: the dataplane is the only neighbour, and a pod needs its address
// at once.
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

// prefixOf is the inverse of ipNet. It returns the zero prefix for nil.
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

func family(is4 bool) int {
	if is4 {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// addressRange is an inclusive range of addresses of one family.
type addressRange struct{ first, last netip.Addr }

// rangesOf returns the sorted, disjoint and non-adjacent ranges that the prefixes of one family cover.
func rangesOf(prefixes []netip.Prefix, is4 bool) []addressRange {
	var all []addressRange
	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			all = append(all, addressRange{p.Addr(), netaddr.Last(p)})
		}
	}
	slices.SortFunc(all, func(a, b addressRange) int {
		return cmp.Or(a.first.Compare(b.first), a.last.Compare(b.last))
	})
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

func prefixesOf(ranges []addressRange) (list []netip.Prefix) {
	for _, r := range ranges {
		list = append(list, r.prefixes()...)
	}
	return list
}

// prefixes returns the fewest prefixes that cover exactly the range.
func (r addressRange) prefixes() (list []netip.Prefix) {
	for at := r.first; at.IsValid() && !r.last.Less(at); {
		p := netaddr.Single(at)
		for p.Bits() > 0 {
			wider := netip.PrefixFrom(at, p.Bits()-1)
			if wider.Masked().Addr() != at || r.last.Less(netaddr.Last(wider)) {
				break
			}
			p = wider
		}
		list = append(list, p)
		at = netaddr.Last(p).Next()
	}
	return list
}

func neighbourDescriptor(overfull *Overfull) kvscheduler.Descriptor[wire.LinuxNeighbour, netnsID] {
	at := func(v wire.LinuxNeighbour) (on, namespace string) { return v.On, v.Namespace }
	d := onLink(kvscheduler.Follow, at, namespaced[wire.LinuxNeighbour]{
		kind:   wire.KindLinuxNeighbour,
		put:    setNeighbour,
		remove: deleteNeighbour,
		find:   findNeighbour,
		list:   listNeighbours,
		link:   func(v wire.LinuxNeighbour) string { return v.Link },

		needsIPv6: func(v wire.LinuxNeighbour) bool { return v.Address.Is6() },
		overfull:  overfull,
	})
	d.Validate = validateNeighbour
	d.Recreate = func(have, want wire.LinuxNeighbour) bool {
		return have.Namespace != want.Namespace || have.Link != want.Link
	}
	return d
}

func validateNeighbour(name string, v wire.LinuxNeighbour) error {
	switch {
	case !v.Address.IsValid() || v.Address.Is4In6() || v.Address.IsUnspecified() || v.Address.IsMulticast() ||
		v.Address.Zone() != "":
		return fmt.Errorf("address %s is not a unicast address without zone", v.Address)
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not a unicast MAC", v.MAC)
	}
	return validateOn(v.On, v.Link, name, wire.LinuxNeighbourKey(v.On, v.Address))
}

// setNeighbour adds a permanent entry. It replaces an entry that the kernel has learned.
func setNeighbour(h *handle, v wire.LinuxNeighbour) error {
	l, err := h.linkFor(v.Link, v.Address)
	if err == nil {
		err = h.NeighSet(kernelNeighbour(l, v))
	}
	if err != nil {
		return refused(fmt.Errorf("set neighbour %s on %s: %w", v.Address, v.Link, err))
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

func findNeighbour(h *handle, v wire.LinuxNeighbour) (wire.LinuxNeighbour, bool, error) {
	l, err := h.link(v.Link)
	if err != nil {
		return v, false, err
	}
	list, err := h.NeighList(l.Attrs().Index, family(v.Address.Is4()))
	for _, n := range list {
		if addrOf(n.IP) == v.Address && n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) == len(v.MAC) {
			v.MAC = netaddr.MAC(n.HardwareAddr)
			return v, true, err
		}
	}
	return v, false, err
}

// listNeighbours lists permanent entries.
func listNeighbours(h *handle, l netlink.Link, v wire.LinuxNeighbour) (map[string]wire.LinuxNeighbour, error) {
	list, err := h.NeighList(l.Attrs().Index, netlink.FAMILY_ALL)
	found := map[string]wire.LinuxNeighbour{}
	for _, n := range list {
		if n.State&netlink.NUD_PERMANENT != 0 && len(n.HardwareAddr) == len(v.MAC) {
			v.Address = addrOf(n.IP)
			v.MAC = netaddr.MAC(n.HardwareAddr)
			found[parseRef(wire.LinuxNeighbourKey(v.On, v.Address)).Name] = v
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
