package linux

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// kernelTables have rules of the kernel's own.
var kernelTables = []int{unix.RT_TABLE_UNSPEC, unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT}

// RouteMoved reports whether a route that is not in the main table is in one that a rule leads the link's own addresses
// to: so do plugins for source based routing, which come after us in a chain.
func RouteMoved(v wire.LinuxRoute) (moved bool, err error) {
	err = visit(v.Namespace, Place{}, func(h *handle) error {
		l, err := h.link(v.Link)
		if err != nil {
			return err
		}
		tables, err := tablesOf(h, l, v.Destination.Addr().Is4())
		if err != nil {
			return err
		}
		for _, table := range tables {
			there, err := routesIn(h, table, v.Destination)
			if err != nil {
				return err
			}
			moved = moved || slices.ContainsFunc(there, func(r netlink.Route) bool { return leadsTo(r, l, v) })
		}
		return nil
	})
	return moved, err
}

// tablesOf are those that rules lead packets from the link's addresses to.
func tablesOf(h *handle, l netlink.Link, is4 bool) ([]int, error) {
	addresses, err := addressesOf(h, l)
	if err != nil {
		return nil, err
	}
	rules, err := whole(func() ([]netlink.Rule, error) { return h.RuleList(family(is4)) })
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var tables []int
	for _, r := range rules {
		ours := func(p netip.Prefix) bool { return prefixOf(r.Src) == netip.PrefixFrom(p.Addr(), p.Addr().BitLen()) }
		if !slices.Contains(kernelTables, r.Table) && slices.ContainsFunc(addresses, ours) {
			tables = append(tables, r.Table)
		}
	}
	return tables, nil
}
