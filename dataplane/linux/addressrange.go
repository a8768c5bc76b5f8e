package linux

import (
	"cmp"
	"net/netip"
	"slices"
)

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
