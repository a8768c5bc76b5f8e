package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

type uplinkItem = kvscheduler.Item[wire.Uplink, struct{}]

// uplinkDescriptor makes a card depend on all objects by which the dataplane serves it. If the dataplane refuses one of
// them, or has no objects after a restart, the kernel keeps the card.
func uplinkDescriptor() kvscheduler.Descriptor[wire.Uplink, struct{}] {
	return kvscheduler.Descriptor[wire.Uplink, struct{}]{
		Name: wire.KindUplink, Lane: Lane,
		Equal:    wire.Uplink.Equal,
		Validate: validateUplink,
		Deps: func(_ string, v wire.Uplink) []kvscheduler.Dep {
			deps := []kvscheduler.Dep{
				{Label: "network card", On: kvscheduler.Ref{Kind: wire.KindLink, Name: v.Card.Link}},
				{Label: "link to the dataplane", On: parseRef(v.On), Mode: kvscheduler.Follow},
			}
			for _, key := range v.Needs {
				deps = append(deps, kvscheduler.Dep{Label: "dataplane", On: parseRef(key)})
			}
			return deps
		},
		Recreate: func(have, want wire.Uplink) bool {
			return have.Card.Link != want.Card.Link || have.To != want.To || have.On != want.On
		},
		After: []string{wire.KindLink, wire.KindVeth, wire.KindTapPeer},
		Backend: simple[wire.Uplink, struct{}]{
			kind: wire.KindUplink,
			create: func(it *uplinkItem) error {
				return withHandle(func(h *handle) error { return takeCard(h, it.Want) })
			},
			update: func(it *uplinkItem) error {
				return withHandle(func(h *handle) error { return moveCard(h, it.Want) })
			},
			remove: func(_ context.Context, it *uplinkItem) error {
				return withHandle(func(h *handle) error { return releaseCard(h, it.Have) })
			},
			read: readKnownUplink,
		},
	}
}

func validateUplink(name string, v wire.Uplink) error {
	switch {
	case name != v.Card.Link:
		return fmt.Errorf("name %s is not that of the network card, %s", name, v.Card.Link)
	case v.To == v.Card.Link:
		return fmt.Errorf("network card %s is also the link to the dataplane", v.Card.Link)
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not a unicast MAC", v.MAC)
	case len(v.Card.Addresses) == 0:
		return fmt.Errorf("network card %s has no address", v.Card.Link)
	case v.Drift != "":
		return errors.New("drift cannot be desired")
	}
	for _, f := range v.Card.Families() {
		if !v.Gateway(f).IsValid() {
			return fmt.Errorf("no gateway of family %s for network card %s", f, v.Card.Link)
		}
	}
	for _, r := range v.Card.Routes {
		if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() {
			return fmt.Errorf("destination %s of a route is not masked", r.Destination)
		}
	}
	for _, key := range append([]string{v.On}, v.Needs...) {
		if _, err := kvscheduler.ParseRef(key); err != nil {
			return err
		}
	}
	return errors.Join(validateLink(v.Card.Link), validateLink(v.To))
}

// takeCard moves addresses and routes from the card to the link, or completes an interrupted move. It reverts a move
// that fails.
func takeCard(h *handle, v wire.Uplink) error {
	err := moveCard(h, v)
	if err == nil {
		return nil
	}
	if undo := releaseCard(h, v); undo != nil {
		return fmt.Errorf("%w, and release of network card %s: %w", err, v.Card.Link, undo)
	}
	return refused(err)
}

// ReleaseUplink gives a network card in the caller's namespace back to the kernel, also after an interrupted move. It
// sets the link to the dataplane down: a dataplane that still has the card would send each packet to the kernel a
// second time.
func ReleaseUplink(v wire.Uplink) error {
	return withHandle(func(h *handle) error {
		if err := releaseCard(h, v); err != nil {
			return err
		}
		to, err := h.link(v.To)
		if errors.Is(err, errNoLink) {
			return nil
		}
		if err != nil {
			return err
		}
		return setUp(h, to, false)
	})
}

// RestoreCard restores the addresses, routes and settings of a released network card. It does not touch the link to the
// dataplane, which another card may use by now.
func RestoreCard(card wire.Card) error {
	return withHandle(func(h *handle) error {
		l, err := h.link(card.Link)
		if errors.Is(err, errNoLink) {
			return nil
		}
		if err != nil {
			return err
		}
		return restoreCard(h, l, card)
	})
}

// UplinkIsMoved reports whether a network card is moved, completely or in part.
func UplinkIsMoved(v wire.Uplink) (moved bool, err error) {
	err = withHandle(func(h *handle) (err error) {
		_, moved, err = readUplink(h, v)
		return err
	})
	return moved, err
}

// readKnownUplink reads a card by its applied value, else by the desired one.
func readKnownUplink(view kvscheduler.View, name string) (v wire.Uplink, _ struct{}, found bool, err error) {
	values := knownValues[wire.Uplink](view, wire.KindUplink, name)
	if len(values) == 0 {
		return v, struct{}{}, false, nil
	}
	v = values[0]
	v.Drift = ""
	err = withHandle(func(h *handle) (err error) {
		v, found, err = readUplink(h, v)
		return err
	})
	return v, struct{}{}, found, err
}

// moveCard moves the addresses and routes of a card to the link to the dataplane. After each step the node has its
// addresses and a route to the network. Repeating the move completes it:
//
//	add addresses to the link -> set up the card -> replace the card's routes by routes through the link -> delete addresses from the card
//	-> drop packets that the card receives
func moveCard(h *handle, v wire.Uplink) error {
	steps, err := moveSteps(h, v)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// moveStep is one step of moving a card.
type moveStep struct {
	what string
	do   func() error
}

// moveSteps returns the steps in order. Neighbours come after addresses, since the kernel flushes the neighbours of a
// link without an address.
func moveSteps(h *handle, v wire.Uplink) (steps []moveStep, err error) {
	card, err := h.link(v.Card.Link)
	if err != nil {
		return nil, err
	}
	to, err := h.link(v.To)
	if err != nil {
		return nil, err
	}
	if err := checkRoutes(h, card, v.Card); err != nil {
		return nil, err
	}
	add := func(what string, do func() error) { steps = append(steps, moveStep{what, do}) }
	for _, a := range v.Card.Addresses {
		add(fmt.Sprintf("add address %s to %s", a.Prefix, v.To), func() error {
			return addAddress(h, wire.LinuxAddress{Link: v.To, Prefix: hostPrefix(a)})
		})
	}
	// After an address: a card that counts as moved is not read again, so its changed settings never replace the
	// original ones.
	add("prepare "+v.Card.Link, func() error { return prepareCard(h, card, v.Card) })
	for _, n := range gateways(v) {
		add(fmt.Sprintf("add neighbour %s to %s", n.Address, v.To), func() error { return setNeighbour(h, n) })
	}
	for _, r := range v.Card.Routes {
		add(fmt.Sprintf("add route to %s through %s", r.Destination, v.To), func() error {
			return replaceRoute(h, movedRoute(to, v, r))
		})
	}
	for _, a := range v.Card.Addresses {
		add(fmt.Sprintf("delete address %s from %s", a.Prefix, v.Card.Link), func() error {
			if err := h.AddrDel(card, &netlink.Addr{IPNet: ipNet(a.Prefix)}); !isGone(err) {
				return err
			}
			return nil
		})
	}
	add("drop packets that "+v.Card.Link+" receives", func() error { return writeDropTable(v.Card.Link) })
	return steps, nil
}

// checkRoutes returns an error for a card with a route that it did not have when it was read: the move would lose that
// route.
func checkRoutes(h *handle, l netlink.Link, card wire.Card) error {
	current, err := cardRoutes(h, l, card)
	if err != nil {
		return err
	}
	for _, r := range current {
		known := slices.ContainsFunc(card.Routes, func(k wire.CardRoute) bool { return k.Destination == r.Destination })
		if !known && r.Protocol != unix.RTPROT_KERNEL {
			return fmt.Errorf("network card %s has a new route to %s, which the agent has not read: restart the agent",
				card.Link, r.Destination)
		}
	}
	return nil
}

// prepareCard makes the card receive all multicast, since without addresses the kernel does not know the groups, pass
// on frames unmerged, and ignore router advertisements.
func prepareCard(h *handle, l netlink.Link, card wire.Card) error {
	if card.AcceptRA != "" && !settingIs(acceptRA(card.Link), "0") {
		if err := os.WriteFile(acceptRA(card.Link), []byte("0"), 0); err != nil {
			return fmt.Errorf("disable router advertisements on %s: %w", card.Link, err)
		}
	}
	if l.Attrs().RawFlags&unix.IFF_ALLMULTI == 0 {
		if err := h.LinkSetAllmulticastOn(l); err != nil {
			return fmt.Errorf("set allmulticast on %s: %w", card.Link, err)
		}
	}
	if off, err := isOff(card.Link, card.Features); off || err != nil {
		return err
	}
	return setFeatures(card.Link, card.Features, func(bool) bool { return false })
}

// hostPrefix returns an address without its subnet, which is behind the dataplane.
func hostPrefix(a wire.CardAddress) netip.Prefix {
	return netaddr.Single(a.Prefix.Addr())
}

// movedProtocol identifies the routes of moved cards in the kernel, which are not objects of kind linux.route.
const movedProtocol = 202

// movedRoute returns a route of the card through the link to the dataplane, with the same metric.
func movedRoute(to netlink.Link, v wire.Uplink, r wire.CardRoute) *netlink.Route {
	family := netaddr.FamilyOf(r.Destination.Addr())
	moved := &netlink.Route{
		LinkIndex: to.Attrs().Index,
		Dst:       ipNet(r.Destination),
		Gw:        v.Gateway(family).AsSlice(),
		Priority:  r.Metric,
		Protocol:  movedProtocol,
		Table:     unix.RT_TABLE_MAIN, MTU: r.MTU, AdvMSS: r.AdvMSS, Flags: int(netlink.FLAG_ONLINK),
	}
	if source := movedSource(v, r); source.IsValid() {
		moved.Src = source.AsSlice()
	}
	return moved
}

// movedSource returns the preferred source of a moved route. Without one, the kernel would choose an IPv4 source by the
// subnet of the gateway, which is the dataplane now. It chooses IPv6 sources by destination, as before.
func movedSource(v wire.Uplink, r wire.CardRoute) netip.Addr {
	if r.Source.IsValid() || r.Destination.Addr().Is6() {
		return r.Source
	}
	for _, a := range v.Card.Addresses {
		if r.Gateway.IsValid() && a.Prefix.Contains(r.Gateway) || a.Prefix.Masked() == r.Destination {
			return a.Prefix.Addr()
		}
	}
	return v.Card.Address(netaddr.IP4)
}

// gateways returns the neighbour entries for the dataplane's end of the link.
func gateways(v wire.Uplink) (neighbours []wire.LinuxNeighbour) {
	for _, a := range v.Gateways {
		neighbours = append(neighbours, wire.LinuxNeighbour{Link: v.To, Address: a, MAC: v.MAC})
	}
	return neighbours
}

// replaceRoute replaces the route with the same destination and metric.
func replaceRoute(h *handle, r *netlink.Route) error {
	if err := h.RouteReplace(r); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// releaseCard reverts moveCard. If the card does not exist, it only clears the link to the dataplane.
func releaseCard(h *handle, v wire.Uplink) error {
	err := removeTable(dropTable())
	to, noLink := h.link(v.To)
	if noLink != nil && !errors.Is(noLink, errNoLink) {
		return errors.Join(err, noLink)
	}
	card, noCard := h.link(v.Card.Link)
	switch {
	case noCard == nil:
		err = errors.Join(err, restoreCard(h, card, v.Card))
	case !errors.Is(noCard, errNoLink):
		return errors.Join(err, noCard)
	}
	if err != nil || noLink != nil {
		return err
	}
	for _, r := range v.Card.Routes {
		err = errors.Join(err,
			deleted(fmt.Sprintf("route to %s through %s", r.Destination, v.To), h.RouteDel(movedRoute(to, v, r))))
	}
	for _, n := range gateways(v) {
		err = errors.Join(err, deleted(fmt.Sprintf("neighbour %s on %s", n.Address, v.To), deleteNeighbour(h, n)))
	}
	for _, a := range v.Card.Addresses {
		err = errors.Join(err,
			deleted(fmt.Sprintf("address %s on %s", a.Prefix, v.To),
				h.AddrDel(to, &netlink.Addr{IPNet: ipNet(hostPrefix(a))})))
	}
	return err
}

// restoreCard restores addresses, routes and settings of a card.
func restoreCard(h *handle, l netlink.Link, card wire.Card) error {
	if err := setUp(h, l, true); err != nil {
		return err
	}
	for _, a := range card.Addresses {
		if err := h.AddrAdd(l, kernelCardAddress(a)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("restore address %s of %s: %w", a.Prefix, card.Link, err)
		}
	}
	for _, withGateway := range []bool{false, true} { // a gateway needs the route to it
		for _, r := range card.Routes {
			if r.Gateway.IsValid() != withGateway {
				continue
			}
			if err := replaceRoute(h, kernelCardRoute(l, r)); err != nil {
				return fmt.Errorf("restore route to %s through %s: %w", r.Destination, card.Link, err)
			}
		}
	}
	err := removeSurplus(h, l, card)
	if card.AcceptRA != "" {
		value := card.AcceptRA
		if value == "1" && settingIs("/proc/sys/"+forwarding6, "1") {
			value = "2" // like keepAdvertisements: forwarding was enabled meanwhile
		}
		err = errors.Join(err, os.WriteFile(acceptRA(card.Link), []byte(value), 0))
	}
	if !card.AllMulticast {
		err = errors.Join(err, h.LinkSetAllmulticastOff(l))
	}
	return errors.Join(err, setFeatures(card.Link, card.Features, func(was bool) bool { return was }))
}

// removeSurplus removes the routes that the kernel made for the restored addresses and that the card did not have: they
// may have another metric.
func removeSurplus(h *handle, l netlink.Link, card wire.Card) error {
	current, err := cardRoutes(h, l, card)
	if err != nil {
		return err
	}
	for _, r := range current {
		had := slices.ContainsFunc(card.Routes, func(k wire.CardRoute) bool {
			return k.Destination == r.Destination && k.Metric == r.Metric
		})
		if had || r.Protocol != unix.RTPROT_KERNEL {
			continue
		}
		err = errors.Join(err,
			deleted(fmt.Sprintf("route to %s through %s", r.Destination, card.Link), h.RouteDel(kernelCardRoute(l, r))))
	}
	return err
}

func kernelCardRoute(l netlink.Link, r wire.CardRoute) *netlink.Route {
	k := &netlink.Route{
		LinkIndex: l.Attrs().Index,
		Dst:       ipNet(r.Destination),
		Priority:  r.Metric,
		Protocol:  netlink.RouteProtocol(r.Protocol),
		Scope:     netlink.Scope(r.Scope), Table: unix.RT_TABLE_MAIN, MTU: r.MTU, AdvMSS: r.AdvMSS, Flags: r.Flags,
	}
	if r.Gateway.IsValid() {
		k.Gw = r.Gateway.AsSlice()
	}
	if r.Source.IsValid() {
		k.Src = r.Source.AsSlice()
	}
	return k
}

// readUplink reports whether a card is moved, completely or in part, and sets Drift to a difference from the value.
func readUplink(h *handle, v wire.Uplink) (have wire.Uplink, found bool, err error) {
	have = v
	to, err := h.link(v.To)
	if errors.Is(err, errNoLink) {
		return have, false, nil
	}
	if err != nil {
		return have, false, err
	}
	moved, err := addressesOf(h, to)
	if err != nil {
		return have, false, err
	}
	dropping, err := hasDropTable(v.Card.Link)
	if err != nil {
		return have, false, err
	}
	found = dropping
	for _, a := range v.Card.Addresses {
		isMoved := slices.Contains(moved, hostPrefix(a))
		found = found || isMoved
		if !isMoved {
			have.Drift = fmt.Sprintf("address %s is not on %s", a.Prefix, v.To)
		}
	}
	if !found {
		return have, false, nil
	}
	if have.Drift == "" && !dropping {
		have.Drift = fmt.Sprintf("the kernel processes packets that %s receives", v.Card.Link)
	}
	if have.Drift == "" {
		have.Drift, err = cardDrift(h, to, v)
	}
	return have, true, err
}

// cardDrift describes a difference of neighbours, routes or card from a completed move; "": none.
func cardDrift(h *handle, to netlink.Link, v wire.Uplink) (string, error) {
	for _, n := range gateways(v) {
		if have, found, err := findNeighbour(h, n); err != nil || !found || have != n {
			return fmt.Sprintf("neighbour %s on %s is not the dataplane", n.Address, v.To), err
		}
	}
	for _, r := range v.Card.Routes {
		want := movedRoute(to, v, r)
		found, err := routesIn(h, unix.RT_TABLE_MAIN, r.Destination)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(found, func(k netlink.Route) bool {
			return k.LinkIndex == want.LinkIndex && k.Priority == want.Priority && k.Gw.Equal(want.Gw) &&
				k.Src.Equal(want.Src) && k.MTU == want.MTU
		}) {
			return fmt.Sprintf("the route to %s with metric %d is not through %s", r.Destination, r.Metric, v.To), nil
		}
	}
	card, err := h.link(v.Card.Link)
	if err != nil {
		return "", err
	}
	on, err := addressesOf(h, card)
	if err != nil {
		return "", err
	}
	for _, a := range v.Card.Addresses {
		if slices.Contains(on, a.Prefix) {
			return fmt.Sprintf("address %s is on %s", a.Prefix, v.Card.Link), nil
		}
	}
	off, err := isOff(v.Card.Link, v.Card.Features)
	switch {
	case err != nil:
		return "", err
	case !off, card.Attrs().RawFlags&unix.IFF_ALLMULTI == 0,
		v.Card.AcceptRA != "" && !settingIs(acceptRA(v.Card.Link), "0"):
		return fmt.Sprintf("%s merges packets, does not receive all multicast or accepts router advertisements",
			v.Card.Link), nil
	}
	return "", nil
}
