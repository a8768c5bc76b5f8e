package linux

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

const (
	cardName  = "card0"
	cardLink0 = "vtep0"
	cardVeth  = "card-link"
)

// newCardLab makes a node with a network card, with all kinds of configuration that can move, and a link to the
// dataplane.
func newCardLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: cardName, MTU: 1400}, PeerName: "cable0"}
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { must(t, netlink.LinkDel(veth)) })
	for _, name := range []string{cardName, "cable0"} {
		must(t, netlink.LinkSetUp(mustFind(t, name)))
	}
	features(t, map[string]bool{"rx-gro": true})
	card := mustFind(t, cardName)
	for _, a := range []*netlink.Addr{
		{
			IPNet:     ipNet(netip.MustParsePrefix("192.0.2.1/24")),
			Label:     cardName + ":1",
			Broadcast: netip.MustParseAddr("192.0.2.255").AsSlice(),
		},
		// a secondary address
		{IPNet: ipNet(netip.MustParsePrefix("192.0.2.9/24")), Broadcast: netip.IPv4Unspecified().AsSlice()},
		{IPNet: ipNet(netip.MustParsePrefix("198.51.100.1/32")), Scope: int(netlink.SCOPE_LINK)},
		{IPNet: ipNet(netip.MustParsePrefix("2001:db8:ff::1/64")), Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE},
		{
			IPNet:       ipNet(netip.MustParsePrefix("2001:db8:fe::1/64")),
			Flags:       unix.IFA_F_NODAD,
			ValidLft:    100000,
			PreferedLft: 50000,
		},
	} {
		must(t, netlink.AddrAdd(card, a))
	}
	index := card.Attrs().Index
	for _, r := range []netlink.Route{
		{
			Dst:      ipNet(netip.MustParsePrefix("0.0.0.0/0")),
			Gw:       netip.MustParseAddr("192.0.2.254").AsSlice(),
			Priority: 100,
			Protocol: unix.RTPROT_DHCP,
		},
		{
			Dst:    ipNet(netip.MustParsePrefix("203.0.113.0/24")),
			Gw:     netip.MustParseAddr("192.0.2.253").AsSlice(),
			MTU:    1300,
			AdvMSS: 1200,
		},
		{
			Dst:      ipNet(netip.MustParsePrefix("203.0.113.0/24")),
			Gw:       netip.MustParseAddr("192.0.2.252").AsSlice(),
			Priority: 7,
		},
		{
			Dst:   ipNet(netip.MustParsePrefix("198.51.100.0/24")),
			Scope: netlink.SCOPE_LINK,
			Src:   netip.MustParseAddr("192.0.2.9").AsSlice(),
		},
		{
			Dst:   ipNet(netip.MustParsePrefix("10.77.0.0/16")),
			Gw:    netip.MustParseAddr("10.66.0.1").AsSlice(),
			Flags: int(netlink.FLAG_ONLINK),
		},
		{Dst: ipNet(netip.MustParsePrefix("2001:db8:ff::/64")), Priority: 300, Protocol: unix.RTPROT_RA},
		{
			Dst:      ipNet(netip.MustParsePrefix("::/0")),
			Gw:       netip.MustParseAddr("fe80::1").AsSlice(),
			Priority: 1024,
			Protocol: unix.RTPROT_RA,
		},
		{
			Dst:      ipNet(netip.MustParsePrefix("2001:db8:1::/48")),
			Gw:       netip.MustParseAddr("2001:db8:ff::2").AsSlice(),
			Priority: 20,
		},
	} {
		r.LinkIndex = index
		must(t, netlink.RouteAdd(&r))
	}
	must(t, os.WriteFile(acceptRA(cardName), []byte("2"), 0))
	awaitLinkLocal(t, card)
	return l
}

// awaitLinkLocal waits until the kernel has given a link its link-local address, some time after it has carrier. States
// of the link before and after that differ.
func awaitLinkLocal(t *testing.T, link netlink.Link) {
	t.Helper()
	isLinkLocal := func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() }
	for deadline := time.Now().Add(time.Minute); ; runtime.Gosched() {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V6)
		must(t, err)
		if slices.ContainsFunc(addresses, isLinkLocal) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no link-local address: %v", link.Attrs().Name, addresses)
		}
	}
}

func features(t *testing.T, change map[string]bool) map[string]bool {
	t.Helper()
	tool, err := ethtool.NewEthtool()
	must(t, err)
	defer tool.Close()
	if change != nil {
		must(t, tool.Change(cardName, change))
	}
	now, err := tool.Features(cardName)
	must(t, err)
	return now
}

// uplinkOf returns the uplink of the card, and the objects that it depends on.
func (l *lab) uplinkOf() (wire.Uplink, []object) {
	l.Helper()
	card, err := ReadCard(cardName)
	must(l.T, err)
	on := wire.VethKey(cardVeth)
	v := wire.Uplink{
		Card:     card,
		On:       on,
		To:       cardLink0,
		MAC:      mac1,
		Gateways: []netip.Addr{netip.MustParseAddr("169.254.43.2"), netip.MustParseAddr("fd77:6566:7400::2")},
	}
	return v, []object{
		{wire.LinkKey(cardName), wire.Link{Name: cardName, Up: true}},
		{on, wire.Veth{Name: cardLink0, HostName: "vtep1", MAC: mac2, HostMAC: mac1, Alias: alias, Up: true}},
	}
}

// cardState describes addresses, routes and settings of a link, without lifetimes and the state of duplicate address
// detection.
func cardState(t *testing.T, name string) string {
	t.Helper()
	var b strings.Builder
	l := mustFind(t, name)
	addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	must(t, err)
	for _, a := range addresses {
		shown := settable | unix.IFA_F_SECONDARY | unix.IFA_F_DEPRECATED | unix.IFA_F_DADFAILED
		if !a.IP.IsLinkLocalUnicast() {
			shown |= unix.IFA_F_TENTATIVE
		}
		fmt.Fprintln(&b, a.IPNet, a.Broadcast, a.Label, a.Scope, a.Flags&shown, (a.ValidLft+500)/1000,
			(a.PreferedLft+500)/1000)
	}
	var routes []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: l.Attrs().Index},
			netlink.RT_FILTER_OIF)
		must(t, err)
		for _, r := range list {
			routes = append(routes, fmt.Sprint(r))
		}
	}
	slices.Sort(routes)
	fmt.Fprintln(&b, strings.Join(routes, "\n"))
	fmt.Fprintln(&b, "multicast", l.Attrs().RawFlags&unix.IFF_ALLMULTI)
	ra, err := os.ReadFile(acceptRA(name))
	must(t, err)
	fmt.Fprintln(&b, "accept_ra", string(ra))
	return b.String()
}

func TestMovedCardIsRestored(t *testing.T) {
	l := newCardLab(t)
	before := cardState(t, cardName)
	featuresBefore := features(t, nil)
	v, ground := l.uplinkOf()
	it := object{wire.UplinkKey(cardName), v}
	l.mustCommit(append(ground, it)...)
	l.quiet()
	if now := features(t, nil); now["rx-gro"] || now["tx-checksum-ip-generic"] {
		t.Error("the card merges packets, or passes on packets without a checksum")
	}
	on, err := netlink.AddrList(mustFind(t, cardName), netlink.FAMILY_V4)
	must(t, err)
	if len(on) > 0 {
		t.Errorf("the card still has %v", on)
	}
	for to, want := range map[string]struct{ gateway, source string }{
		"192.0.2.77":       {"169.254.43.2", "192.0.2.1"},
		"8.8.8.8":          {"169.254.43.2", "192.0.2.1"},
		"198.51.100.77":    {"169.254.43.2", "192.0.2.9"},
		"2001:db8:ff::77":  {"fd77:6566:7400::2", "2001:db8:ff::1"},
		"2001:db8:fe::77":  {"fd77:6566:7400::2", "2001:db8:fe::1"},
		"2001:4860:4860::": {"fd77:6566:7400::2", "2001:db8:fe::1"},
	} {
		routes, err := netlink.RouteGet(netip.MustParseAddr(to).AsSlice())
		must(t, err)
		if r := routes[0]; addrOf(r.Gw) != netip.MustParseAddr(want.gateway) ||
			addrOf(r.Src) != netip.MustParseAddr(want.source) {
			t.Errorf("to %s: %v, want gateway %s and source %s", to, r, want.gateway, want.source)
		}
	}
	moved, err := UplinkIsMoved(v)
	must(t, err)
	if !moved {
		t.Error("the card counts as not moved")
	}
	l.mustCommit(object{it.key, nil})
	if after := cardState(t, cardName); after != before {
		t.Errorf("the card had\n%s\nand has now\n%s", before, after)
	}
	if now := features(t, nil); !reflect.DeepEqual(now, featuresBefore) {
		t.Errorf("the card's features were\n%v\nand are\n%v", featuresBefore, now)
	}
	if moved, err = UplinkIsMoved(v); moved || err != nil {
		t.Errorf("the card counts as moved; error %v", err)
	}
	if left := cardState(t, cardLink0); strings.Contains(left, "192.0.2") || strings.Contains(left, "2001:db8") {
		t.Errorf("the link to the dataplane has\n%s", left)
	}
}

// interruptedState returns an error unless a node with an agent that was killed during the move has its addresses and a
// route to the network, and the next agent knows the configuration of the card.
func interruptedState(v wire.Uplink) error {
	for _, a := range v.Card.Addresses {
		name, _, err := LinkByAddress(a.Prefix.Addr())
		if err != nil {
			return fmt.Errorf("no link has %s: %w", a.Prefix, err)
		}
		if routes, err := netlink.RouteGet(netip.MustParseAddr("8.8.8.8").AsSlice()); err != nil || len(routes) != 1 {
			return fmt.Errorf("with %s on %s, no route to the network: %w", a.Prefix, name, err)
		}
	}
	if moved, err := UplinkIsMoved(v); moved || err != nil {
		return err // the file of the card has the configuration
	}
	if now, err := ReadCard(cardName); err != nil || !now.Equal(v.Card) {
		return fmt.Errorf("the card is read as %+v, want %+v: %w", now, v.Card, err)
	}
	return nil
}

func TestInterruptedMoveOfACardIsCompletedOrReverted(t *testing.T) {
	l := newCardLab(t)
	before := cardState(t, cardName)
	v, ground := l.uplinkOf()
	l.mustCommit(ground...)
	steps := 0
	for complete := false; !complete; steps++ {
		must(t, withHandle(func(h *handle) error {
			list, err := moveSteps(h, v)
			complete = steps >= len(list)
			for _, step := range list[:min(steps, len(list))] {
				must(t, step.do())
			}
			return err
		}))
		if err := interruptedState(v); err != nil {
			t.Fatalf("after %d steps: %v", steps, err)
		}
		if steps%2 == 0 { // complete the move, then revert it
			must(t, withHandle(func(h *handle) error { return moveCard(h, v) }))
			must(t, withHandle(func(h *handle) error {
				have, found, err := readUplink(h, v)
				if !found || have.Drift != "" {
					t.Errorf("after %d steps and a completed move: found %t, %s", steps, found, have.Drift)
				}
				return err
			}))
		}
		for range 2 { // a release can be repeated
			must(t, withHandle(func(h *handle) error { return releaseCard(h, v) }))
		}
		if after := cardState(t, cardName); after != before {
			t.Fatalf("after %d steps of the move and the release, the card had\n%s\nand has now\n%s", steps, before,
				after)
		}
	}
	if steps <= 15 {
		t.Errorf("only %d steps were interrupted", steps)
	}
}

// After a configuration change to another card, the agent restores the earlier card once more when the dataplane has
// released it. By then, the link and the rules belong to the other card.
func TestRestoreCardKeepsTheLinkOfTheNextCard(t *testing.T) {
	l := newCardLab(t)
	before := cardState(t, cardName)
	v, ground := l.uplinkOf()
	l.mustCommit(ground...)
	must(t, withHandle(func(h *handle) error { return moveCard(h, v) }))
	must(t, ReleaseUplink(v))
	next, err := netlink.LinkByName(cardLink0)
	must(t, err)
	must(t, netlink.LinkSetUp(next))
	addTap(t, "other0")
	must(t, writeDropTable("other0"))
	must(t, netlink.LinkSetDown(mustFind(t, cardName))) // like VPP
	must(t, RestoreCard(v.Card))
	awaitLinkLocal(t, mustFind(t, cardName)) // the kernel deleted it with the link's state
	if after := cardState(t, cardName); after != before {
		t.Errorf("the card had\n%s\nand has now\n%s", before, after)
	}
	if !isUp(mustFind(t, cardLink0)) {
		t.Error("the link to the dataplane is down")
	}
	if is, err := hasDropTable("other0"); !is || err != nil {
		t.Errorf("the rules of the other card are missing: %v", err)
	}
}

func TestUnmergedLinkHasNoGRO(t *testing.T) {
	l := newCardLab(t)
	features(t, map[string]bool{"rx-gro": true})
	link := object{wire.LinkKey(cardName), wire.Link{Name: cardName, Up: true, Unmerged: true}}
	gro := map[string]bool{"rx-gro": true}
	mustBeOff := func(want bool) {
		t.Helper()
		if off, err := isOff(cardName, gro); err != nil || off != want {
			t.Errorf("GRO is off: %t, want %t; %v", off, want, err)
		}
	}
	l.mustCommit(link)
	mustBeOff(true)
	features(t, gro)
	l.resync()
	mustBeOff(true)
	l.mustCommit(object{link.key, nil})
	mustBeOff(false)
}

func TestDriftOfAMovedCardIsRepaired(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, v wire.Uplink){
		"address on the card again": func(t *testing.T, v wire.Uplink) {
			must(t, netlink.AddrAdd(mustFind(t, cardName), kernelCardAddress(v.Card.Addresses[0])))
		},
		"no address on the link": func(t *testing.T, v wire.Uplink) {
			must(t,
				netlink.AddrDel(mustFind(t, cardLink0), &netlink.Addr{IPNet: ipNet(hostPrefix(v.Card.Addresses[0]))}))
		},
		"no default route through the link": func(t *testing.T, v wire.Uplink) {
			at := slices.IndexFunc(v.Card.Routes, func(r wire.CardRoute) bool { return r.Destination.Bits() == 0 })
			must(t, netlink.RouteDel(movedRoute(mustFind(t, cardLink0), v, v.Card.Routes[at])))
		},
		"neighbour": func(t *testing.T, v wire.Uplink) {
			must(t, netlink.NeighDel(kernelNeighbour(mustFind(t, cardLink0), gateways(v)[0])))
		},
		"table":   func(t *testing.T, _ wire.Uplink) { must(t, removeTable(dropTable())) },
		"merging": func(t *testing.T, _ wire.Uplink) { features(t, map[string]bool{"rx-gro": true}) },
		"multicast": func(t *testing.T, _ wire.Uplink) {
			must(t, netlink.LinkSetAllmulticastOff(mustFind(t, cardName)))
		},
		"advertisements": func(t *testing.T, _ wire.Uplink) {
			must(t, os.WriteFile(acceptRA(cardName), []byte("1"), 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newCardLab(t)
			before := cardState(t, cardName)
			v, ground := l.uplinkOf()
			it := object{wire.UplinkKey(cardName), v}
			l.mustCommit(append(ground, it)...)
			spoil(t, v)
			l.staysDifferent(it.key)
			if different := l.different(); !slices.Contains(different, it.key) {
				t.Errorf("objects %v differ", different)
			}
			_, err := l.s.Resync(t.Context(), kvscheduler.ResyncOpt{Force: true})
			must(t, err)
			l.quiet()
			l.mustCommit(object{it.key, nil})
			if after := cardState(t, cardName); after != before {
				t.Errorf("the card had\n%s\nand has now\n%s", before, after)
			}
		})
	}
}

func TestReadCardFailsForAConfigurationThatCannotMove(t *testing.T) {
	for name, c := range map[string]struct {
		add  func(t *testing.T)
		says string
	}{
		"policy routing": {func(t *testing.T) {
			must(t, netlink.RouteAdd(&netlink.Route{
				LinkIndex: mustFind(t, cardName).Attrs().Index,
				Table:     77,
				Dst:       ipNet(netip.MustParsePrefix("10.5.0.0/16")),
				Scope:     netlink.SCOPE_LINK,
			}))
		}, "table 77"},
		"peer": {func(t *testing.T) {
			must(t, netlink.AddrAdd(mustFind(t, cardName), &netlink.Addr{
				IPNet: ipNet(netip.MustParsePrefix("10.5.0.1/32")), Peer: ipNet(netip.MustParsePrefix("10.5.0.2/32")),
			}))
		}, "has a peer"},
		"bridge": {func(t *testing.T) {
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
			must(t, netlink.LinkAdd(bridge))
			t.Cleanup(func() { must(t, netlink.LinkDel(bridge)) })
			must(t, netlink.LinkSetMaster(mustFind(t, cardName), bridge))
		}, "belongs to a bridge"},
	} {
		t.Run(name, func(t *testing.T) {
			newCardLab(t)
			c.add(t)
			if _, err := ReadCard(cardName); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestANewRouteStopsTheMoveOfACard(t *testing.T) {
	l := newCardLab(t)
	v, ground := l.uplinkOf()
	must(t, netlink.RouteAdd(&netlink.Route{
		LinkIndex: mustFind(t, cardName).Attrs().Index,
		Dst:       ipNet(netip.MustParsePrefix("10.5.0.0/16")),
		Gw:        netip.MustParseAddr("192.0.2.3").AsSlice(),
	}))
	before := cardState(t, cardName)
	l.mustCommit(ground...)
	if err := l.commit(object{wire.UplinkKey(cardName), v}); err == nil ||
		!strings.Contains(err.Error(), "10.5.0.0/16") {
		t.Errorf("error %v, want one with the route", err)
	}
	if after := cardState(t, cardName); after != before {
		t.Errorf("the card had\n%s\nand has now\n%s", before, after)
	}
}
