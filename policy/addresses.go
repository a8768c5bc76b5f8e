package policy

import (
	"fmt"
	"net/netip"

	netutils "k8s.io/utils/net"
)

// mappedBits is the length of the prefix ::ffff:0:0/96, behind which IPv6 has IPv4 addresses.
const mappedBits = 96

// ParseAddress parses an address of an object of the API as the API server does: numbers of IPv4 may have leading
// zeros, and are decimal. An IPv4-mapped address is one of IPv4.
func ParseAddress(text string) (netip.Addr, error) {
	a, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	if !ok {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	}
	return a.Unmap(), nil
}

// ParsePrefix parses a CIDR of an object of the API as the API server does, see [ParseAddress]. It may have host bits.
// The result is masked.
func ParsePrefix(text string) (netip.Prefix, error) {
	_, network, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", text)
	}
	a, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	if a.Is4In6() { // the bits before it are not masked, so the prefix is longer than they are
		return netip.PrefixFrom(a.Unmap(), bits-mappedBits), nil
	}
	return netip.PrefixFrom(a, bits), nil
}
