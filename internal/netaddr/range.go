package netaddr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// Range is a range of addresses of one family, both ends included.
type Range struct{ First, Last netip.Addr }

// ParseRange parses an address, a prefix, or two addresses with a dash.
func ParseRange(text string) (Range, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		if p != p.Masked() {
			return Range{}, fmt.Errorf("%s has host bits set, did you mean %s?", p, p.Masked())
		}
		return RangeOf(p), nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	r := Range{}
	var errs [2]error
	r.First, errs[0] = netip.ParseAddr(strings.TrimSpace(first))
	r.Last, errs[1] = netip.ParseAddr(strings.TrimSpace(last))
	switch {
	case errors.Join(errs[:]...) != nil || r.First.Zone() != "" || r.Last.Zone() != "":
		return Range{}, fmt.Errorf("%.80q is not an address, a prefix or a range such as 10.1.0.1-10.1.0.20", text)
	case r.First.Is4() != r.Last.Is4() || r.First.Is4In6() || r.Last.Is4In6():
		return Range{}, fmt.Errorf("%.80q mixes IPv4 and IPv6", text)
	case r.Last.Less(r.First):
		return Range{}, fmt.Errorf("%.80q ends before it begins", text)
	}
	return r, nil
}

// RangeOf returns the addresses of a prefix.
func RangeOf(p netip.Prefix) Range { return Range{First: p.Masked().Addr(), Last: Last(p)} }

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.Is4() == r.First.Is4() && !a.Less(r.First) && !r.Last.Less(a)
}

// Within reports whether all addresses of the range are in a prefix.
func (r Range) Within(p netip.Prefix) bool { return p.Contains(r.First) && p.Contains(r.Last) }

// Overlaps reports whether an address of the range is in a prefix.
func (r Range) Overlaps(p netip.Prefix) bool {
	return r.Contains(p.Masked().Addr()) || p.Contains(r.First)
}

// String returns the form that ParseRange accepts.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// MarshalText implements encoding.TextMarshaler.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Range) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRange(string(text))
	return err
}

// Ranges are several ranges, which may overlap.
type Ranges []Range

// Containing returns the range with the highest end that contains an address.
func (s Ranges) Containing(a netip.Addr) (found Range, ok bool) {
	for _, r := range s {
		if r.Contains(a) && (!ok || found.Last.Less(r.Last)) {
			found = r
			ok = true
		}
	}
	return found, ok
}

// Contain reports whether an address is in one of the ranges.
func (s Ranges) Contain(a netip.Addr) bool {
	_, ok := s.Containing(a)
	return ok
}

// Cover reports whether one of the ranges contains all addresses of a prefix.
func (s Ranges) Cover(p netip.Prefix) bool {
	all := RangeOf(p)
	return slices.ContainsFunc(s, func(r Range) bool { return r.Contains(all.First) && r.Contains(all.Last) })
}

// CountIn counts the addresses from first to last that are in one of the ranges; at most math.MaxUint64.
func (s Ranges) CountIn(first, last netip.Addr) (count uint64) {
	sorted := slices.SortedFunc(slices.Values(s), func(x, y Range) int { return x.First.Compare(y.First) })
	next := first // not counted yet
	for _, r := range sorted {
		if r.First.Is4() != first.Is4() {
			continue
		}
		from := later(r.First, next)
		to := earlier(r.Last, last)
		if to.Less(from) {
			continue
		}
		size := sizeOf(from, to)
		if count+size < count || size == math.MaxUint64 {
			return math.MaxUint64
		}
		count += size
		next = to.Next()
		if !next.IsValid() {
			break
		}
	}
	return count
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlier(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}

// sizeOf returns the number of addresses from first to last; at most math.MaxUint64.
func sizeOf(first, last netip.Addr) uint64 {
	a := first.As16()
	b := last.As16()
	high := binary.BigEndian.Uint64(b[:8]) - binary.BigEndian.Uint64(a[:8])
	low := binary.BigEndian.Uint64(b[8:]) - binary.BigEndian.Uint64(a[8:])
	isBorrowed := binary.BigEndian.Uint64(b[8:]) < binary.BigEndian.Uint64(a[8:])
	if isBorrowed {
		high--
	}
	if high > 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}
