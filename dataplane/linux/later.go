package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// kernelTables have rules of the kernel's own.
var kernelTables = []int{unix.RT_TABLE_UNSPEC, unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT}

// Later holds what later plugins of CNI chains changed of the links of pods, by the name of the dataplane's interface that a
// link belongs to. The descriptors read such a change as the desired state, and make it again where a link is made again. A
// nil Later holds nothing.
type Later struct {
	mu    sync.RWMutex
	links map[string]Changes
}

// Changes are the changes of later plugins to one link. The zero value is none.
type Changes struct {
	// Open is true while the plugins of the chain may still run: whatever MTU the link has, and whatever table a rule leads the
	// link's addresses to, is left alone.
	Open bool `json:"-"`

	MTU    int                  `json:"mtu,omitempty"`    // bytes; 0: not changed
	Tables map[netip.Prefix]int `json:"tables,omitempty"` // by destination, the table that a route was moved to; 0: it was removed
}

// IsZero reports whether nothing was changed, and the chain is at its end.
func (c Changes) IsZero() bool { return !c.Open && c.MTU == 0 && len(c.Tables) == 0 }

// Set replaces what is known of a link; the zero Changes forget it.
func (l *Later) Set(object string, c Changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links == nil {
		l.links = make(map[string]Changes)
	}
	l.links[object] = c
	if c.IsZero() {
		delete(l.links, object)
	}
}

func (l *Later) of(object string) Changes {
	if l == nil {
		return Changes{}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.links[object]
}

// wanted is the MTU that a link gets: a later plugin's, or else ours.
func (c Changes) wanted(ours int) int {
	if c.MTU != 0 {
		return c.MTU
	}
	return ours
}

// read is the MTU of a link as it is compared with ours: what a later plugin set is read as ours, and ours, which would undo that,
// as the later plugin's.
func (c Changes) read(now, ours int) int {
	switch {
	case c.Open || now == c.MTU:
		return ours
	case c.MTU != 0 && now == ours:
		return c.MTU
	}
	return now
}

// table is where a route is: the main table, or where a later plugin moved it to. removed is true for a route that a later
// plugin removed.
func (c Changes) table(v wire.LinuxRoute) (table int, removed bool) {
	table, moved := c.Tables[v.Destination]
	if !moved {
		return unix.RT_TABLE_MAIN, false
	}
	return table, table == 0
}

// ReadChanges compares the link of a pod with its desired MTU and its desired routes. A route counts as moved or removed only
// if rules lead packets from an address of the link to a table that is not the kernel's, as plugins for source based routing
// have it. The error wraps ErrGone if the namespace is gone.
func ReadChanges(n wire.Namespace, link string, mtu int, routes []wire.LinuxRoute) (c Changes, err error) {
	err = visit(n.Path, Place{n.Inode, n.Device}, func(h *handle) error {
		l, err := h.link(link)
		if err != nil {
			return err
		}
		if now := l.Attrs().MTU; mtu != 0 && now != mtu {
			c.MTU = now
		}
		for _, v := range routes {
			table, moved, err := movedTo(h, l, v)
			if err != nil {
				return err
			}
			if moved {
				if c.Tables == nil {
					c.Tables = make(map[netip.Prefix]int)
				}
				c.Tables[v.Destination] = table
			}
		}
		return nil
	})
	return c, err
}

// movedTo finds the table that a later plugin moved a route to; 0 if it is in none.
func movedTo(h *handle, l netlink.Link, v wire.LinuxRoute) (table int, moved bool, err error) {
	leads := func(r netlink.Route) bool { return leadsTo(r, l, v) }
	there, err := routesIn(h, unix.RT_TABLE_MAIN, v.Destination)
	if err != nil || slices.ContainsFunc(there, leads) {
		return 0, false, err
	}
	tables, err := tablesOf(h, l, v.Destination.Addr().Is4())
	for _, t := range tables {
		there, e := routesIn(h, t, v.Destination)
		if slices.ContainsFunc(there, leads) {
			return t, true, nil
		}
		err = errors.Join(err, e)
	}
	return 0, err == nil && len(tables) > 0, err
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
