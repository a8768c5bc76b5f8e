package netaddr

import "net/netip"

// Single returns the prefix that contains only a; it is invalid if a is. A zone is dropped, as in all prefixes.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
