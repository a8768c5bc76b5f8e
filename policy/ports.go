package policy

import (
	"cmp"
	"slices"
)

func comparePorts(a, b PortRange) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
}

// mergePorts returns the fewest ranges with the same ports, sorted.
func mergePorts(ranges []PortRange) []PortRange {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, comparePorts)
	merged := sorted[:0]
	for _, r := range sorted {
		if n := len(merged); n > 0 && merged[n-1].Protocol == r.Protocol && int(r.First) <= int(merged[n-1].Last)+1 {
			merged[n-1].Last = max(merged[n-1].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// portsContain reports whether merged ranges have a port. No ranges are all protocols and ports.
func portsContain(ranges []PortRange, protocol uint8, port uint16) bool {
	if len(ranges) == 0 {
		return true
	}
	at, _ := slices.BinarySearchFunc(ranges, PortRange{Protocol: protocol, Range: Range{First: port, Last: port}},
		comparePorts)
	isIn := func(r PortRange) bool { return r.Protocol == protocol && r.Contains(port) }
	return at < len(ranges) && isIn(ranges[at]) || at > 0 && isIn(ranges[at-1])
}

// intersectPorts returns the common ports of merged ranges; false without a common port. No ranges are all protocols
// and ports.
func intersectPorts(a, b []PortRange) ([]PortRange, bool) {
	switch {
	case len(a) == 0:
		return b, true
	case len(b) == 0:
		return a, true
	}
	var both []PortRange
	for len(a) > 0 && len(b) > 0 {
		if a[0].Protocol == b[0].Protocol {
			common := Range{First: max(a[0].First, b[0].First), Last: min(a[0].Last, b[0].Last)}
			if common.First <= common.Last {
				both = append(both, PortRange{a[0].Protocol, common})
			}
		}
		if cmp.Or(cmp.Compare(a[0].Protocol, b[0].Protocol), cmp.Compare(a[0].Last, b[0].Last)) < 0 {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both, len(both) > 0
}
