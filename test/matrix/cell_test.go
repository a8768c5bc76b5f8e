package matrix_test

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
)

// cell is an interface type on a network with address families; two pods have the interface.
type cell struct {
	kind string // tap, veth or memif
	// main, default, stub, L2 or L3; main is the main interface, the others are extra interfaces beside a main tap
	network  string
	families string // v4, v6 or dual
}

// cells returns all cells of a node with addresses of these families.
func cells(families string) []cell {
	var all []cell
	for _, kind := range dataplane.Kinds() {
		for _, network := range []string{"main", "default", "stub", "L2", "L3"} {
			if kind != "memif" || network != "main" { // a main interface is in the pod's kernel
				all = append(all, cell{kind, network, families})
			}
		}
	}
	return all
}

func (c cell) String() string { return c.kind + "-" + c.network }

// isCustom reports whether the cell's network is one of the configuration.
func (c cell) isCustom() bool { return c.network == "L2" || c.network == "L3" }

// name returns the network's name in the configuration.
func (c cell) name() string { return strings.ToLower(c.network) + "-net" }

// link returns the interface's name in the pod.
func (c cell) link() string {
	if c.network == "main" {
		return "eth0"
	}
	return "x0"
}

// podInterface returns the type of the main interface.
func (c cell) podInterface() string {
	if c.network == "main" {
		return c.kind
	}
	return dataplane.Tap()
}

// annotations returns the annotations that request the interface.
func (c cell) annotations() map[string]string {
	switch {
	case c.network == "main":
		return nil
	case c.isCustom():
		return map[string]string{"contivpp.io/custom-if": "x0/" + c.kind + "/" + c.name()}
	}
	return map[string]string{"contivpp.io/custom-if": "x0/" + c.kind + "/" + c.network}
}

// has4 and has6 report whether the interface has an address of that family.
func (c cell) has4() bool { return c.network != "stub" && c.families != "v6" }
func (c cell) has6() bool { return c.network != "stub" && c.families != "v4" }

// cidrs returns the CIDRs of the cell's network.
func (c cell) cidrs() []netip.Prefix {
	third := 5
	if c.network == "L3" {
		third = 6
	}
	return c.chosen(fmt.Sprintf("10.%d.0.0/24", third), fmt.Sprintf("fd00:%d::/64", third))
}

// chosen returns the prefixes of the cell's families.
func (c cell) chosen(v4, v6 string) (prefixes []netip.Prefix) {
	if c.families != "v6" {
		prefixes = append(prefixes, netip.MustParsePrefix(v4))
	}
	if c.families != "v4" {
		prefixes = append(prefixes, netip.MustParsePrefix(v6))
	}
	return prefixes
}

// options returns the options of a node with addresses of these families.
func options(families string) node.Options {
	o := node.Options{Memifs: 4}
	for i, p := range (cell{families: families}).chosen("10.1.0.0/24", "fd00:10:1::/64") {
		o.Pools = append(o.Pools, node.Pool{Name: fmt.Sprintf("pods%d", i), Prefix: p})
	}
	for _, kind := range []string{"L2", "L3"} {
		c := cell{network: kind, families: families}
		o.Networks = append(o.Networks, node.Network{Name: c.name(), Type: kind, CIDRs: c.cidrs()})
	}
	return o
}
