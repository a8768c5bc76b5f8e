package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
	"github.com/weftnet/weft/test/traffic"
)

// attempt is an attempt to reach an address of one network by an interface in another network.
type attempt struct {
	name string
	from string // path of the network namespace; "" = the node's
	link string
	via  []netip.Addr // gateways on the link, by family; none = the addresses are on-link
	to   []netip.Addr // by family
	fine bool         // it must succeed: a control for the other attempts
}

// attempts returns all attempts. No two from one namespace have the same address.
func (d *demo) attempts() []attempt {
	toNode := []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")}
	ways := func(p *attachedPod, link string) []netip.Addr { return p.on(link).Gateways }
	return []attempt{
		{"b by red    -> a on red", d.b.Netns, "red0", ways(&d.b, "red0"), d.a.on("red0").Bare(), true},
		{"b by red    -> a on blue", d.b.Netns, "red0", ways(&d.b, "red0"), d.a.on("blue0").Bare(), false},
		{"a by blue   -> b on red", d.a.Netns, "blue0", ways(&d.a, "blue0"), d.b.on("red0").Bare(), false},
		{"a by its main interface -> b on blue", d.a.Netns, "eth0", toNode, d.b.on("blue0").Bare(), false},
		{"b by blue   -> a's main interface", d.b.Netns, "blue0", ways(&d.b, "blue0"), d.a.main(), false},
		{"the node    -> b's main interface", "", node.HostLink, toNode, d.b.main(), true},
		{"the node    -> a on blue", "", node.HostLink, toNode, d.a.on("blue0").Bare(), false},
		{"the node    -> a on red", "", node.HostLink, toNode, d.a.on("red0").Bare(), false},
		{"e by green  -> b on blue", d.e.Netns, "green0", nil, d.b.on("blue0").Bare(), false},
	}
}

// unreachable is the timeout of addresses that must not answer.
const unreachable = 500 * time.Millisecond

// isolation makes all attempts concurrently.
func (d *demo) isolation(ctx context.Context) error {
	all := d.attempts()
	var g errgroup.Group
	for _, a := range all {
		for i, to := range a.to {
			var via netip.Addr
			if len(a.via) > i {
				via = a.via[i]
			}
			g.Go(func() error { return a.try(ctx, via, to) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, a := range all {
		verdict := "silence"
		if a.fine {
			verdict = "answers, as it must"
		}
		d.printf("%-38s %s", a.name, verdict)
	}
	return nil
}

// try adds a route for the attempt to the namespace, so that its packets are sent, and pings.
func (a attempt) try(ctx context.Context, via, to netip.Addr) (err error) {
	if via.IsValid() {
		if err := traffic.Inside(a.from, func() error { return a.route(netlink.RouteAdd, via, to) }); err != nil {
			return fmt.Errorf("%s: add a route to %s: %w", a.name, to, err)
		}
		defer func() {
			err = errors.Join(err, traffic.Inside(a.from, func() error { return a.route(netlink.RouteDel, via, to) }))
		}()
	}
	wait := unreachable
	if a.fine {
		wait = reachable
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p, err := ping.OpenOn(a.from, a.link, to)
	if err != nil {
		return err
	}
	defer p.Close()
	took, silent := p.Reach(ctx, to)
	switch {
	case a.fine && silent != nil:
		return fmt.Errorf("%s: %w", a.name, silent)
	case !a.fine && silent == nil:
		return fmt.Errorf("%s: %s answers in %s, but must not", a.name, to, took)
	}
	return nil
}

// route adds or deletes the route of the attempt.
func (a attempt) route(do func(*netlink.Route) error, via, to netip.Addr) error {
	link, err := netlink.LinkByName(a.link)
	if err != nil {
		return err
	}
	return do(&netlink.Route{
		LinkIndex: link.Attrs().Index, Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK), Priority: 1,
		Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())},
	})
}
