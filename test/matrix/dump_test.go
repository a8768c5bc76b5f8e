package matrix_test

import (
	"slices"
	"strings"
	"testing"
)

// judgeDump counts what the dataplane has of the cell's interface, both pods taken together. Lines are those of a
// comparison of snapshots: "+ interface dataplane weft-<hash>-x0#<hash> type ...".
func (c cell) judgeDump(t *testing.T, lines []string) {
	t.Helper()
	marks := map[string]int{}
	tables := map[string]bool{}
	for _, line := range lines {
		kind, rest, _ := strings.Cut(strings.TrimPrefix(line, "+ "), " ")
		if strings.Contains(rest, "-"+c.link()+"#") && strings.HasPrefix(rest, "dataplane") {
			marks[kind]++
			if kind == "fib-route" {
				tables[strings.Fields(rest)[2]] = true
			}
		}
		if kind == "fib-neighbour" && strings.HasPrefix(rest, "dataplane weft-gw-l2-net#") && strings.HasSuffix(rest, "_STATIC") {
			marks["known to the gateway"]++
		}
		if kind == "interface" && strings.Contains(rest, "-"+c.link()+"#") && !strings.Contains(rest, " type "+c.deviceType()+" ") {
			t.Errorf("not an interface of type %s: %s", c.deviceType(), line)
		}
	}
	for kind, want := range c.marks() {
		if marks[kind] != want {
			t.Errorf("the dataplane has %d objects of kind %s for %s, want %d:\n  %s", marks[kind], kind, c.link(), want, strings.Join(lines, "\n  "))
		}
	}
	c.judgeTables(t, tables)
}

// deviceType is the dataplane's name for the type of the interface.
func (c cell) deviceType() string {
	return map[string]string{"tap": "virtio", "veth": "af-packet", "memif": "memif"}[c.kind]
}

// marks are how many objects of each kind two pods have for the cell's interface.
func (c cell) marks() map[string]int {
	routed := slices.Contains([]string{"main", "default", "L3"}, c.network)
	addresses := 0
	for _, has := range []bool{c.has4(), c.has6()} {
		if has {
			addresses += 2
		}
	}
	return map[string]int{
		"interface":            2,
		"memif":                when(c.kind == "memif", 2),
		"af-packet":            when(c.kind == "veth", 2),
		"bridge-member":        when(c.network == "L2", 2),
		"fib-route":            when(routed, addresses),
		"fib-neighbour":        when(routed, addresses),
		"known to the gateway": when(c.network == "L2", addresses+when(c.has6(), 2)), // link-local ones too
		"unnumbered":           when(routed, 2),
		"macip-interface":      when(c.network == "main", 2),
		"acl-interface":        when(c.network == "L2" && addresses > 0, 2),
	}
}

func when(holds bool, n int) int {
	if !holds {
		return 0
	}
	return n
}

// judgeTables looks at the tables of the interface's routes: 1 is that of the network default.
func (c cell) judgeTables(t *testing.T, tables map[string]bool) {
	t.Helper()
	switch c.network {
	case "main", "default":
		if len(tables) != 1 || !tables["1"] {
			t.Errorf("routes are in the tables %v, want 1 alone", tables)
		}
	case "L3":
		if len(tables) != 1 || tables["1"] || tables["0"] {
			t.Errorf("routes are in the tables %v, want one of the network's own", tables)
		}
	}
}
