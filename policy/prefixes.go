package policy

import (
	"net/netip"
	"slices"
)

// everywhere lists the prefixes of all addresses.
var everywhere = []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}

// isEverywhere reports whether prefixes contain all addresses.
func isEverywhere(prefixes []netip.Prefix) bool { return slices.Equal(prefixes, everywhere) }

// subtract returns the prefixes of the addresses in p that none of the others contains.
func subtract(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	var rest []netip.Prefix
	difference(p, within(p, others), func(r netip.Prefix) bool {
		rest = append(rest, r)
		return true
	})
	return rest
}

// within returns the prefixes that overlap p, aggregated.
func within(p netip.Prefix, prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(aggregate(prefixes), func(o netip.Prefix) bool { return !o.Overlaps(p) })
}

// difference calls yield with the prefixes of the addresses in p outside of the holes, until yield returns false. The
// holes are aggregated and overlap p. It halves p only along the way to each hole, so that it visits at most twice as
// many prefixes as holes have bits.
func difference(p netip.Prefix, holes []netip.Prefix, yield func(netip.Prefix) bool) bool {
	switch {
	case len(holes) == 0:
		return yield(p)
	case holes[0].Bits() <= p.Bits():
		return true
	}
	low, high := halves(p)
	inLow, _ := slices.BinarySearchFunc(holes, high.Addr(), func(hole netip.Prefix, first netip.Addr) int {
		return hole.Addr().Compare(first)
	})
	return difference(low, holes[:inLow], yield) && difference(high, holes[inLow:], yield)
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits()
	raw := p.Addr().AsSlice()
	raw[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(p.Addr(), bits+1), netip.PrefixFrom(upper, bits+1)
}

// aggregate returns the fewest prefixes with the same addresses, sorted.
func aggregate(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var out []netip.Prefix
	for _, p := range sorted {
		if n := len(out); n > 0 && out[n-1].Bits() <= p.Bits() && out[n-1].Contains(p.Addr()) {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1 && out[n-1].Bits() > 0 && out[n-1].Bits() == out[n-2].Bits(); n = len(out) {
			parent := netip.PrefixFrom(out[n-1].Addr(), out[n-1].Bits()-1).Masked()
			if low, high := halves(parent); low != out[n-2] || high != out[n-1] {
				break
			}
			out = append(out[:n-2], parent)
		}
	}
	return out
}

// intersect returns the common addresses of two prefixes.
func intersect(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() < b.Bits() {
		a, b = b, a
	}
	return a, a.Addr().BitLen() == b.Addr().BitLen() && b.Contains(a.Addr())
}

// intersectAll returns the common addresses of two aggregated sets of prefixes, aggregated.
func intersectAll(a, b []netip.Prefix) []netip.Prefix {
	switch {
	case isEverywhere(a):
		return b
	case isEverywhere(b):
		return a
	}
	var common []netip.Prefix
	for len(a) > 0 && len(b) > 0 {
		both, some := intersect(a[0], b[0])
		if some {
			common = append(common, both)
		}
		switch {
		case some && both == a[0]:
			a = a[1:]
		case some:
			b = b[1:]
		case a[0].Compare(b[0]) < 0:
			a = a[1:]
		default:
			b = b[1:]
		}
	}
	return aggregate(common)
}

// ByFamily divides sorted prefixes into prefixes of IPv4 and of IPv6, without a copy. A family without prefixes is left
// out.
func ByFamily(prefixes []netip.Prefix) [][]netip.Prefix {
	fours := slices.IndexFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if fours < 0 {
		fours = len(prefixes)
	}
	return slices.DeleteFunc([][]netip.Prefix{prefixes[:fours:fours], prefixes[fours:]},
		func(list []netip.Prefix) bool { return len(list) == 0 })
}
