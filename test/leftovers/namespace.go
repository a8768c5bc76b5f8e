package leftovers

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// families are the address families of routes and neighbours.
var families = []int{unix.AF_INET, unix.AF_INET6}

// kernel reads one network namespace.
type kernel struct {
	*netlink.Handle
	name  string
	links map[int]string // index -> name
}

// addNamespace records links, addresses, routes, rules and neighbours.
func (s *Snapshot) addNamespace(name, path string) error {
	k, err := openKernel(name, path)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", name, err)
	}
	defer k.Close()
	errs := []error{s.addLinks(k), s.addAddresses(k)}
	for _, family := range families {
		errs = append(errs, s.addRoutes(k, family), s.addRules(k, family), s.addNeighbours(k, family))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("read namespace %s: %w", name, err)
	}
	return nil
}

func openKernel(name, path string) (*kernel, error) {
	k := &kernel{name: name, links: map[int]string{}}
	if path == "" {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		k.Handle = h
		return k, err
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	k.Handle, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	return k, err
}

func (s *Snapshot) addLinks(k *kernel) error {
	links, err := k.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		k.links[a.Index] = a.Name
		s.add("link", k.name, "%s %s %s mtu %d mac %s alias %q", a.Name, l.Type(), state(a.Flags), a.MTU,
			a.HardwareAddr, a.Alias)
	}
	return nil
}

func state(flags net.Flags) string {
	if flags&net.FlagUp != 0 {
		return "up"
	}
	return "down"
}

func (s *Snapshot) addAddresses(k *kernel) error {
	addresses, err := k.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addresses {
		s.add("address", k.name, "%s %s", k.links[a.LinkIndex], a.IPNet)
		if a.Flags&unix.IFA_F_TENTATIVE != 0 {
			s.unfinished = append(s.unfinished, k.links[a.LinkIndex]+" looks for duplicates of "+a.IPNet.String())
		}
	}
	return nil
}

func (s *Snapshot) addRoutes(k *kernel, family int) error {
	// Only a filter on table 0 lists the routes of all tables.
	routes, err := k.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Flags&unix.RTM_F_CLONED != 0 {
			continue // a cached path (PMTU, redirect), not a configured route
		}
		destination := "default"
		if r.Dst != nil {
			destination = r.Dst.String()
		}
		s.add("route", k.name, "%s via %s dev %s table %d type %d metric %d", destination, r.Gw, k.links[r.LinkIndex],
			r.Table, r.Type, r.Priority)
	}
	return nil
}

func (s *Snapshot) addRules(k *kernel, family int) error {
	rules, err := k.RuleList(family)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil // a kernel without policy routing has no rules
	}
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	for _, r := range rules {
		s.add("rule", k.name, "%s", r)
	}
	return nil
}

func (s *Snapshot) addNeighbours(k *kernel, family int) error {
	neighbours, err := k.NeighList(0, family)
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	proxies, err := k.NeighProxyList(0, family)
	if err != nil {
		return fmt.Errorf("list proxied neighbours: %w", err)
	}
	for _, n := range append(neighbours, proxies...) {
		// Multicast entries and unresolved ones change with the kernel's own traffic.
		if n.State&(netlink.NUD_NOARP|netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) != 0 {
			continue
		}
		s.add("neighbour", k.name, "%s %s at %s %s", k.links[n.LinkIndex], n.IP, n.HardwareAddr, kindOf(n))
	}
	return nil
}

// kindOf distinguishes static neighbours from learned ones.
func kindOf(n netlink.Neigh) string {
	switch {
	case n.Flags&netlink.NTF_PROXY != 0:
		return "proxied"
	case n.State&netlink.NUD_PERMANENT != 0:
		return "permanent"
	}
	return "learned"
}
