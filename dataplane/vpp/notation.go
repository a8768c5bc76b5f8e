package vpp

import (
	"net/netip"

	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/wire"
)

// apiAddress writes an address as the API has it.
func apiAddress(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(a.As4())}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: ip_types.AddressUnionIP6(a.As16())}
}

// address is the inverse of apiAddress.
func address(a ip_types.Address) netip.Addr {
	if a.Af == ip_types.ADDRESS_IP4 {
		return netip.AddrFrom4(a.Un.GetIP4())
	}
	return netip.AddrFrom16(a.Un.GetIP6())
}

func apiPrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: apiAddress(p.Addr()), Len: uint8(p.Bits())}
}

func prefix(p ip_types.Prefix) netip.Prefix {
	return netip.PrefixFrom(address(p.Address), int(p.Len))
}

// interfacePrefix is prefix for an interface's address, which is a type of its own in the API.
func interfacePrefix(p ip_types.AddressWithPrefix) netip.Prefix { return prefix(ip_types.Prefix(p)) }

// families in the order in which dumps ask for them.
var families = []wire.Family{wire.IP4, wire.IP6}

// isLinkLocal reports whether an address of an interface is the one that the API keeps apart from the others.
func isLinkLocal(p netip.Prefix) bool {
	return p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() && p.Bits() == 128
}

// linkLocalOf is the link-local address that an interface makes from its MAC (RFC 4291, appendix A).
func linkLocalOf(m wire.MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: m[0] ^ 2, 9: m[1], 10: m[2], 11: 0xff, 12: 0xfe, 13: m[3], 14: m[4], 15: m[5]})
}

// prefixesOf are the addresses in an answer about an interface, without the link-local one that its MAC makes.
func prefixesOf(r *request, own netip.Addr) []netip.Prefix {
	var found []netip.Prefix
	if reply, ok := r.reply.(*ip.SwInterfaceIP6GetLinkLocalAddressReply); ok {
		a := netip.AddrFrom16(reply.IP)
		if r.retval() == 0 && a.IsLinkLocalUnicast() && a != own {
			found = append(found, netip.PrefixFrom(a, 128))
		}
		return found
	}
	for _, d := range listOf[*ip.IPAddressDetails](r) {
		if p := interfacePrefix(d.Prefix); !isLinkLocal(p) {
			found = append(found, p)
		}
	}
	return found
}
