package api

import (
	"net/netip"

	"go.fd.io/govpp/binapi/ip_types"

	"github.com/weftnet/weft/vswitch/forward"
	"github.com/weftnet/weft/vswitch/model"
)

// family reads a message's address family.
func family(af ip_types.AddressFamily) (forward.Family, error) {
	switch af {
	case ip_types.ADDRESS_IP4:
		return forward.IP4, nil
	case ip_types.ADDRESS_IP6:
		return forward.IP6, nil
	}
	return 0, model.InvalidAddressFamily
}

// familyOf is the family that a message's is_ipv6 means.
func familyOf(isIP6 bool) forward.Family {
	if isIP6 {
		return forward.IP6
	}
	return forward.IP4
}

func fromUnion(f forward.Family, u ip_types.AddressUnion) netip.Addr {
	if f == forward.IP4 {
		return netip.AddrFrom4(u.GetIP4())
	}
	return netip.AddrFrom16(u.GetIP6())
}

func toUnion(a netip.Addr) ip_types.AddressUnion {
	if a.Is4() {
		return ip_types.AddressUnionIP4(a.As4())
	}
	return ip_types.AddressUnionIP6(a.As16())
}

func fromAddress(a ip_types.Address) (netip.Addr, error) {
	f, err := family(a.Af)
	if err != nil {
		return netip.Addr{}, err
	}
	return fromUnion(f, a.Un), nil
}

func toAddress(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: toUnion(a)}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: toUnion(a)}
}

// fromPrefix keeps the host bits. A length that the family does not have makes an invalid prefix, not an
// error: what VPP answers to it differs between messages.
func fromPrefix(p ip_types.Prefix) (netip.Prefix, error) {
	a, err := fromAddress(p.Address)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, int(p.Len)), nil
}

func toPrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: toAddress(p.Addr()), Len: uint8(p.Bits())}
}
