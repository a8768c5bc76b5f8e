package api

import (
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/interface_types"
)

// reference is the expected state after a sequence of calls. It stores only what the calls set; expected dumps are
// derived.
type reference struct {
	interfaces map[interface_types.InterfaceIndex]*refInterface
	tables     map[uint32]bool // IPv4 tables that the API has added, and 0
	routes     map[refPrefix][]refPath
}

type refInterface struct {
	name, tag  string
	up         bool
	table      uint32 // of IPv4
	addresses  []netip.Prefix
	neighbours map[netip.Addr]bool
}

type refPrefix struct {
	table  uint32
	prefix netip.Prefix
}

type refPath struct {
	index   uint32
	nextHop string
}

func newReference() *reference {
	return &reference{interfaces: map[interface_types.InterfaceIndex]*refInterface{0: {name: "local0"}},
		tables: map[uint32]bool{0: true}, routes: map[refPrefix][]refPath{}}
}

// exists reports whether the API or an interface holds a table.
func (r *reference) exists(table uint32) bool {
	if r.tables[table] {
		return true
	}
	for _, i := range r.interfaces {
		if i.table == table {
			return true
		}
	}
	return false
}

// sweep deletes the routes of deleted tables.
func (r *reference) sweep() {
	for k := range r.routes {
		if !r.exists(k.table) {
			delete(r.routes, k)
		}
	}
}

// conflicts reports whether p cannot be added to the interface.
func (r *reference) conflicts(on *refInterface, p netip.Prefix) bool {
	for _, i := range r.interfaces {
		for _, q := range i.addresses {
			sibling := i == on && p.Masked() == q.Masked() && p != q
			if i.table == on.table && p.Addr().Is4() == q.Addr().Is4() && p.Overlaps(q) && !sibling {
				return true
			}
		}
	}
	return false
}

// prefixes returns the route prefixes of an IPv4 table with their sources.
func (r *reference) prefixes(table uint32) map[netip.Prefix]uint8 {
	all := map[netip.Prefix]uint8{}
	put := func(p netip.Prefix, source uint8) {
		if old, ok := all[p]; !ok || source < old {
			all[p] = source
		}
	}
	for p, source := range map[string]uint8{
		"0.0.0.0/0":          20,
		"0.0.0.0/32":         20,
		"255.255.255.255/32": 20,
		"224.0.0.0/4":        1,
		"240.0.0.0/4":        1,
	} {
		put(netip.MustParsePrefix(p), source)
	}
	for k := range r.routes {
		if k.table == table {
			put(k.prefix, 8)
		}
	}
	for _, i := range r.interfaces {
		if i.up && i.table == table {
			i.connected(func(p netip.Prefix) { put(p, 4) })
		}
	}
	for index, i := range r.interfaces {
		for a := range i.neighbours {
			if i.table == table && a.Is4() && r.covered(uint32(index), all, refPrefix{table, netip.PrefixFrom(a, 32)}) {
				put(netip.PrefixFrom(a, 32), 15)
			}
		}
	}
	return all
}

// connected calls put for the prefixes of the interface's connected routes.
func (i *refInterface) connected(put func(netip.Prefix)) {
	for _, p := range i.addresses {
		if !p.Addr().Is4() {
			continue
		}
		put(netip.PrefixFrom(p.Addr(), 32))
		put(p.Masked())
		for _, end := range endsByHand[p.Masked().String()] {
			put(netip.MustParsePrefix(end))
		}
	}
}

// endsByHand returns the first and last address of the prefixes in the property test.
var endsByHand = map[string][]string{
	"10.0.0.0/24": {"10.0.0.0/32", "10.0.0.255/32"},
	"10.0.1.0/24": {"10.0.1.0/32", "10.0.1.255/32"},
	"10.0.0.0/16": {"10.0.0.0/32", "10.0.255.255/32"},
	"10.0.2.0/31": {"10.0.2.0/32", "10.0.2.1/32"},
}

// covered reports whether the longest prefix that contains a host is attached to the interface.
func (r *reference) covered(index uint32, all map[netip.Prefix]uint8, host refPrefix) bool {
	var cover netip.Prefix
	for p := range all {
		if p.Bits() < 32 && p.Contains(host.prefix.Addr()) && (!cover.IsValid() || p.Bits() > cover.Bits()) {
			cover = p
		}
	}
	switch all[cover] {
	case 4:
		return slices.ContainsFunc(r.interfaces[interface_types.InterfaceIndex(index)].addresses,
			func(q netip.Prefix) bool { return q.Masked() == cover })
	case 8:
		paths := r.routes[refPrefix{host.table, cover}]
		return slices.ContainsFunc(paths, func(p refPath) bool { return p.nextHop == "0.0.0.0" }) &&
			paths[0].index == index
	}
	return false
}

func (p refPath) String() string { return fmt.Sprintf("%s on %d", p.nextHop, p.index) }
