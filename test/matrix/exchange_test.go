package matrix_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// Timeouts of addresses that must answer, and of those that must not.
const (
	reachable   = time.Minute
	unreachable = 300 * time.Millisecond
)

// exchange sends packets in both directions through the interface of the cell.
func (c cell) exchange(t *testing.T, home string, a, b *attachedPod) {
	t.Helper()
	for _, way := range [][2]*attachedPod{{a, b}, {b, a}} {
		from := way[0]
		to := way[1]
		switch c.network {
		case "stub":
			c.nothing(t, from, to)
		case "default":
			// The routes of both directions use the main interfaces.
			answers(t, from, "eth0", to.last().Bare()...)
			c.byItself(t, from, to)
		case "main":
			answers(t, from, "eth0", to.last().Bare()...)
			answers(t, from, "eth0", c.nodeAddresses(t, home)...)
		case "L2", "L3":
			answers(t, from, "x0", to.last().Bare()...)
			answers(t, from, "x0", gateways(from.last())...)
		}
	}
	if c.network == "main" {
		answers(t, &attachedPod{Pod: &node.Pod{Name: "the node", Netns: home}}, "",
			append(a.last().Bare(), b.last().Bare()...)...)
	}
}

// answers fails unless each address answers echo requests that are sent on a link.
func answers(t *testing.T, from *attachedPod, link string, to ...netip.Addr) {
	t.Helper()
	if len(to) == 0 {
		t.Error("no address to reach")
	}
	for _, address := range to {
		if err := way(from.Netns, link).reach(t.Context(), address, reachable); err != nil {
			t.Errorf("from %s by %s: %v", from.Name, link, err)
		}
	}
}

// start is the source of echo requests: a link of a network namespace.
type start struct{ netns, link string }

func way(netns, link string) start { return start{netns, link} }

func (f start) reach(ctx context.Context, to netip.Addr, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p, err := ping.OpenOn(f.netns, f.link, to)
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.Reach(ctx, to)
	return err
}

// gateways returns the gateways of a link's addresses; a link-local one has the link as its zone.
func gateways(l node.Link) []netip.Addr {
	var all []netip.Addr
	for _, g := range l.Gateways {
		if g.IsLinkLocalUnicast() && g.Is6() {
			g = g.WithZone(l.Name)
		}
		all = append(all, g)
	}
	return all
}

// nodeAddresses returns the node's own addresses of the cell's families.
func (c cell) nodeAddresses(t *testing.T, home string) []netip.Addr {
	t.Helper()
	var list []netlink.Addr
	must.Succeed(t, netns.Do(home, func() error {
		l, err := netlink.LinkByName(node.HostLink)
		if err != nil {
			return err
		}
		list, err = netlink.AddrList(l, netlink.FAMILY_ALL)
		return err
	}))
	var all []netip.Addr
	for _, a := range list {
		address, _ := netip.AddrFromSlice(a.IP)
		address = address.Unmap()
		if !address.IsLinkLocalUnicast() && (address.Is4() && c.has4() || address.Is6() && c.has6()) {
			all = append(all, address)
		}
	}
	return all
}

// byItself sends through the extra interface after adding routes to the network to the pods.
func (c cell) byItself(t *testing.T, from, to *attachedPod) {
	t.Helper()
	l := from.last()
	for i, address := range to.last().Bare() {
		must.Succeed(t, route(from.Netns, netlink.RouteAdd, address, l.Gateways[i]))
		answers(t, from, "x0", address)
		must.Succeed(t, route(from.Netns, netlink.RouteDel, address, l.Gateways[i]))
	}
}

// route adds or deletes a pod's route through its extra interface.
func route(path string, do func(*netlink.Route) error, to, via netip.Addr) error {
	return netns.Do(path, func() error {
		l, err := netlink.LinkByName("x0")
		if err != nil {
			return err
		}
		return do(&netlink.Route{
			LinkIndex: l.Attrs().Index, Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK), Priority: 1,
			Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())},
		})
	})
}

// nothing adds on-link addresses to both ends of a stub, and expects that no packet is forwarded.
func (c cell) nothing(t *testing.T, from, to *attachedPod) {
	t.Helper()
	here := c.chosen("10.9.0.1/24", "fd00:9::1/64")
	there := c.chosen("10.9.0.2/24", "fd00:9::2/64")
	var attempts sync.WaitGroup
	for i, p := range there {
		must.Succeed(t, address(from.Netns, netlink.AddrAdd, here[i]))
		must.Succeed(t, address(to.Netns, netlink.AddrAdd, p))
		attempts.Go(func() {
			if way(from.Netns, "x0").reach(t.Context(), p.Addr(), unreachable) == nil {
				t.Errorf("%s answers through a stub interface", p.Addr())
			}
		})
	}
	attempts.Wait()
	for i := range there {
		must.Succeed(t, address(from.Netns, netlink.AddrDel, here[i]))
		must.Succeed(t, address(to.Netns, netlink.AddrDel, there[i]))
	}
}

// address adds or deletes an address of a pod's extra interface.
func address(path string, do func(netlink.Link, *netlink.Addr) error, p netip.Prefix) error {
	return netns.Do(path, func() error {
		l, err := netlink.LinkByName("x0")
		if err != nil {
			return err
		}
		ip := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		return do(l, &netlink.Addr{IPNet: ip, Flags: 2}) // IFA_F_NODAD
	})
}
