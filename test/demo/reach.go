package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// reachAll pings in each direction and both families.
func (d *demo) reachAll(ctx context.Context) error {
	host, err := hostAddresses()
	if err != nil {
		return err
	}
	ways := []struct {
		name, from string
		to         []netip.Addr
	}{
		{"a -> b", d.a.Netns, d.b.main()},
		{"b -> a", d.b.Netns, d.a.main()},
		{"a -> node", d.a.Netns, host},
		{"b -> node", d.b.Netns, host},
		{"node -> a", "", d.a.main()},
		{"node -> b", "", d.b.main()},
	}
	for _, w := range ways {
		for _, to := range w.to {
			took, err := reach(ctx, w.from, "", to)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			d.printf("%-9s  %-20s answers in %s", w.name, to, short(took))
		}
	}
	return nil
}

// reachable is the timeout of addresses that must answer.
const reachable = 2 * time.Second

// reach pings through a link, or through any link if it is "", until there is a reply.
func reach(ctx context.Context, from, link string, to netip.Addr) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, reachable)
	defer cancel()
	p, err := ping.OpenOn(from, link, to)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	return p.Reach(ctx, to)
}

// hostAddresses returns the node's own addresses on its link to the dataplane, one of each family.
func hostAddresses() ([]netip.Addr, error) {
	link, err := net.InterfaceByName(node.HostLink)
	if err != nil {
		return nil, fmt.Errorf("find the node's link %s: %w", node.HostLink, err)
	}
	list, err := link.Addrs()
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", node.HostLink, err)
	}
	var v4, v6 netip.Addr
	for _, a := range list {
		prefix, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil || prefix.Addr().IsLinkLocalUnicast():
		case prefix.Addr().Is4():
			v4 = prefix.Addr()
		default:
			v6 = prefix.Addr()
		}
	}
	if !v4.IsValid() || !v6.IsValid() {
		return nil, errors.New("the node's link " + node.HostLink + " lacks an address of one family")
	}
	return []netip.Addr{v4, v6}, nil
}
