package wire

import "net/netip"

// Family is an address family, written as VPP and operators write it.
type Family string

// The two address families.
const (
	IP4 Family = "ip4"
	IP6 Family = "ip6"
)

// FamilyOf gives the family of an address. An IPv4-mapped IPv6 address is IPv6, as the kernel sees it.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IP4
	}
	return IP6
}
