package linux

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// kernelTables are the routing tables that the kernel's default rules refer to.
var kernelTables = []int{unix.RT_TABLE_UNSPEC, unix.RT_TABLE_LOCAL, unix.RT_TABLE_MAIN, unix.RT_TABLE_DEFAULT}

// ChainChanges has the changes that later plugins of CNI chains made to pods' links, by the name of the dataplane's
// interface. The descriptors read such a change as the desired state, and repeat it when they recreate a link. A nil
// ChainChanges is empty.
type ChainChanges struct {
	mu    sync.RWMutex
	links map[string]LinkChanges
}

// LinkChanges are the changes of later plugins to one link. The zero value has no change.
type LinkChanges struct {
	// Open is true while plugins of the chain may still run: the descriptors accept any MTU of the link, and any
	// routing table that a rule selects for its addresses.
	Open bool `json:"-"`

	MTU int `json:"mtu,omitempty"` // bytes; 0: not changed
	// by destination, the table that a route was moved to; 0: removed
	Tables map[netip.Prefix]int `json:"tables,omitempty"`
}

// IsZero reports whether the chain has ended without changes.
func (c LinkChanges) IsZero() bool { return !c.Open && c.MTU == 0 && len(c.Tables) == 0 }

// Set replaces the changes of a link. The zero LinkChanges remove it.
func (l *ChainChanges) Set(object string, c LinkChanges) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links == nil {
		l.links = make(map[string]LinkChanges)
	}
	l.links[object] = c
	if c.IsZero() {
		delete(l.links, object)
	}
}

func (l *ChainChanges) of(object string) LinkChanges {
	if l == nil {
		return LinkChanges{}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.links[object]
}

// mtu returns the MTU to set on a link: a later plugin's, else the desired one.
func (c LinkChanges) mtu(desired int) int { return cmp.Or(c.MTU, desired) }

// unlowered returns the MTU of a link in a pod, without the pod's own reduction: a pod may lower the MTU of its links.
func (c LinkChanges) unlowered(actual, desired int) int { return max(actual, c.mtu(desired)) }

// readMTU returns the MTU to compare with the desired one. The MTU that a later plugin set counts as desired. The
// desired MTU, which would undo that change, counts as the plugin's.
func (c LinkChanges) readMTU(actual, desired int) int {
	switch {
	case c.Open || actual == c.MTU:
		return desired
	case c.MTU != 0 && actual == desired:
		return c.MTU
	}
	return actual
}

// table returns the table of a route: the main table, or the one that a later plugin moved it to. removed is true if a
// later plugin removed the route.
func (c LinkChanges) table(v wire.LinuxRoute) (table int, removed bool) {
	table, moved := c.Tables[v.Destination]
	if !moved {
		return unix.RT_TABLE_MAIN, false
	}
	return table, table == 0
}

// PodLink is a link that Weft put into a pod. The ADD gave it name and alias.
type PodLink struct {
	Name  string
	Alias string
	Veth  bool // else the Linux end of a tap
	MTU   int  // desired, in bytes; 0: the kernel's
}

// ReadLinkChanges compares the link of a pod with its desired MTU and routes. A route counts as moved or removed only
// if a rule selects a custom table for an address of the link, as plugins for source-based routing do. A link that the
// pod took over has no changes. The error wraps ErrGone if the namespace is deleted.
func ReadLinkChanges(n wire.Namespace, link PodLink, routes []wire.LinuxRoute) (c LinkChanges, err error) {
	err = inNamespace(n.Path, netnsID{n.Inode, n.Device}, func(h *handle) error {
		if at, err := h.placeOf(link); err != nil || at == takenOver {
			return err
		}
		l, err := h.link(link.Name)
		if err != nil {
			return err
		}
		if actual := l.Attrs().MTU; link.MTU != 0 && actual != link.MTU {
			c.MTU = actual
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

// movedTo finds the table that a later plugin moved a route to; 0 if the plugin removed it.
func movedTo(h *handle, l netlink.Link, v wire.LinuxRoute) (table int, moved bool, err error) {
	isRoute := func(r netlink.Route) bool { return hasNextHop(r, l, v) && !standsBeside(r, v) }
	found, err := routesIn(h, unix.RT_TABLE_MAIN, v.Destination)
	if err != nil || slices.ContainsFunc(found, isRoute) {
		return 0, false, err
	}
	tables, err := tablesOf(h, l, v.Destination.Addr().Is4())
	for _, t := range tables {
		found, e := routesIn(h, t, v.Destination)
		if slices.ContainsFunc(found, isRoute) {
			return t, true, nil
		}
		err = errors.Join(err, e)
	}
	return 0, err == nil && len(tables) > 0, err
}

// tablesOf returns the custom tables that rules select for packets from the link's addresses.
func tablesOf(h *handle, l netlink.Link, is4 bool) ([]int, error) {
	addresses, err := addressesOf(h, l)
	if err != nil {
		return nil, err
	}
	rules, err := h.RuleList(family(is4))
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var tables []int
	for _, r := range rules {
		isSource := func(p netip.Prefix) bool {
			return prefixOf(r.Src) == netaddr.Single(p.Addr())
		}
		if !slices.Contains(kernelTables, r.Table) && slices.ContainsFunc(addresses, isSource) {
			tables = append(tables, r.Table)
		}
	}
	return tables, nil
}
