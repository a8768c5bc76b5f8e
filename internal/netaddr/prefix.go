package netaddr

import "net/netip"

// Single returns the prefix that contains only a; it is invalid if a is. A zone is dropped, as in all prefixes.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Last returns the highest address of a prefix: in IPv4 the broadcast address of its subnet. An invalid prefix has an
// invalid one.
func Last(p netip.Prefix) netip.Addr {
	if !p.IsValid() {
		return netip.Addr{}
	}
	octets := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		octets[bit/8] |= 0x80 >> (bit % 8)
	}
	highest, _ := netip.AddrFromSlice(octets) // octets has the length of an address
	return highest
}
