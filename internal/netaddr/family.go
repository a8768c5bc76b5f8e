package netaddr

import "net/netip"

// Family is an address family.
type Family string

// The two address families.
const (
	IP4 Family = "ip4"
	IP6 Family = "ip6"
)

// FamilyOf returns the family of an address. An IPv4-mapped IPv6 address is IPv6, as in the kernel.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IP4
	}
	return IP6
}
