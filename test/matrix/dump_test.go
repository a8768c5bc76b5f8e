package matrix_test

import (
	"slices"
	"strings"
	"testing"
)

// checkDump counts the dataplane's objects of the cell's interface, of both pods together. Lines are those of a
// comparison of snapshots: "+ interface dataplane weft-<hash>-x0#<hash> type ...".
func (c cell) checkDump(t *testing.T, lines []string) {
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
		if kind == "fib-neighbour" && strings.HasPrefix(rest, "dataplane weft-gw-l2-net#") &&
			strings.HasSuffix(rest, "_STATIC") {
			marks["known to the gateway"]++
		}
		if kind == "interface" && strings.Contains(rest, "-"+c.link()+"#") &&
			!strings.Contains(rest, " type "+c.deviceType()+" ") {
			t.Errorf("not an interface of type %s: %s", c.deviceType(), line)
		}
	}
	for kind, want := range c.marks() {
		if marks[kind] != want {
			t.Errorf("the dataplane has %d objects of kind %s for %s, want %d:\n  %s", marks[kind], kind, c.link(),
				want, strings.Join(lines, "\n  "))
		}
	}
	c.checkTables(t, tables)
}

// deviceType returns the dataplane's name of the interface type.
func (c cell) deviceType() string {
	return map[string]string{"tap": "virtio", "veth": "af-packet", "memif": "memif"}[c.kind]
}

// marks returns the number of objects of each kind that two pods have for the cell's interface.
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
		"known to the gateway": when(c.network == "L2", addresses+when(c.has6(), 2)), // including link-local addresses
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

// checkTables checks the tables of the interface's routes: 1 is the table of the network default.
func (c cell) checkTables(t *testing.T, tables map[string]bool) {
	t.Helper()
	switch c.network {
	case "main", "default":
		if len(tables) != 1 || !tables["1"] {
			t.Errorf("routes are in the tables %v, want only 1", tables)
		}
	case "L3":
		if len(tables) != 1 || tables["1"] || tables["0"] {
			t.Errorf("routes are in the tables %v, want only a table of the network", tables)
		}
	}
}
