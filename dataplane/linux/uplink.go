package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// uplinks is the backend of network cards that the dataplane owns.
type uplinks struct{}

type uplinkItem = kvscheduler.Item[wire.Uplink, struct{}]

// uplinkDescriptor: everything by which the dataplane serves the card stands before the kernel gives it up, and goes after the
// kernel has it back. A dataplane that refuses a part of it, or that was restarted and has none of it yet, leaves the card with
// the kernel.
func uplinkDescriptor() kvscheduler.Descriptor[wire.Uplink, struct{}] {
	return kvscheduler.Descriptor[wire.Uplink, struct{}]{
		Name: wire.KindUplink, Lane: Lane,
		Equal:    wire.Uplink.Equal,
		Validate: validateUplink,
		Deps: func(_ string, v wire.Uplink) []kvscheduler.Dep {
			deps := []kvscheduler.Dep{
				{Label: "network card", On: kvscheduler.Ref{Kind: wire.KindLink, Name: v.Card.Link}},
				{Label: "link to the dataplane", On: refOf(v.On), Mode: kvscheduler.Follow},
			}
			for _, key := range v.Needs {
				deps = append(deps, kvscheduler.Dep{Label: "dataplane", On: refOf(key)})
			}
			return deps
		},
		Recreate: func(have, want wire.Uplink) bool {
			return have.Card.Link != want.Card.Link || have.To != want.To || have.On != want.On
		},
		After:   []string{wire.KindLink, wire.KindVeth, wire.KindTapPeer},
		Backend: uplinks{},
	}
}

func validateUplink(name string, v wire.Uplink) error {
	switch {
	case name != v.Card.Link:
		return fmt.Errorf("the name is that of the network card, %s", v.Card.Link)
	case v.To == v.Card.Link:
		return errors.New("network card and link to the dataplane are the same")
	case !v.MAC.IsUnicast():
		return fmt.Errorf("MAC %q is not that of one interface", v.MAC)
	case len(v.Card.Addresses) == 0:
		return fmt.Errorf("network card %s has no address", v.Card.Link)
	case v.Drift != "":
		return errors.New("drift is found, and not desired")
	}
	for _, f := range v.Card.Families() {
		if !v.Gateway(f).IsValid() {
			return fmt.Errorf("the dataplane's end has no address of %s, and network card %s has", f, v.Card.Link)
		}
	}
	for _, r := range v.Card.Routes {
		if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() {
			return fmt.Errorf("destination %s is not masked", r.Destination)
		}
	}
	for _, key := range append([]string{v.On}, v.Needs...) {
		if _, err := kvscheduler.ParseRef(key); err != nil {
			return err
		}
	}
	return errors.Join(validateLink(v.Card.Link), validateLink(v.To))
}

// Create moves addresses and routes from the cards to the links, or completes an interrupted move. What fails is moved back.
func (uplinks) Create(ctx context.Context, batch []uplinkItem) {
	eachUplink(ctx, batch, func(h *handle, it *uplinkItem) error {
		err := takeCard(h, it.Want)
		if err == nil {
			return nil
		}
		if undo := giveBack(h, it.Want); undo != nil {
			return fmt.Errorf("%w, and giving network card %s back: %w", err, it.Want.Card.Link, undo)
		}
		return refused(err)
	})
}

// Update moves what is not moved, or not moved any more.
func (uplinks) Update(ctx context.Context, batch []uplinkItem) {
	eachUplink(ctx, batch, func(h *handle, it *uplinkItem) error { return takeCard(h, it.Want) })
}

// Delete gives the cards back to the kernel.
func (uplinks) Delete(ctx context.Context, batch []uplinkItem) {
	eachUplink(ctx, batch, func(h *handle, it *uplinkItem) error { return giveBack(h, it.Have) })
}

// eachUplink runs f for each item, with a netlink socket of the namespace of agent and dataplane.
func eachUplink(ctx context.Context, batch []uplinkItem, f func(*handle, *uplinkItem) error) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		it.Err = visit("", Place{}, func(h *handle) error { return f(h, it) })
	}
}

// GiveUplinkBack gives a network card back to the kernel, in the namespace of the caller, wherever its move was interrupted. The
// link to the dataplane is set down: a dataplane that still has the card would hand each packet over a second time.
func GiveUplinkBack(v wire.Uplink) error {
	return visit("", Place{}, func(h *handle) error {
		if err := giveBack(h, v); err != nil {
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

// RestoreCard gives a network card once more what it had, after its addresses and routes were moved off the link to the dataplane.
// That link may be another card's now.
func RestoreCard(card wire.Card) error {
	return visit("", Place{}, func(h *handle) error {
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

// UplinkIsMoved reports whether a network card is moved, or a part of it.
func UplinkIsMoved(v wire.Uplink) (moved bool, err error) {
	err = visit("", Place{}, func(h *handle) (err error) {
		_, moved, err = readUplink(h, v)
		return err
	})
	return moved, err
}

// Dump looks for all known cards.
func (b uplinks) Dump(ctx context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Uplink, struct{}], error] {
	var names []string
	for name := range view.All(wire.KindUplink) {
		names = append(names, name)
	}
	return b.Read(ctx, view, names)
}

// Read looks for the named cards.
func (uplinks) Read(ctx context.Context, view kvscheduler.View, names []string) iter.Seq2[kvscheduler.Actual[wire.Uplink, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.Uplink, struct{}], error) bool) {
		for _, name := range names {
			v, known := knownUplink(view, kvscheduler.Ref{Kind: wire.KindUplink, Name: name})
			if !known {
				continue
			}
			found := false
			err := visit("", Place{}, func(h *handle) (err error) {
				v, found, err = readUplink(h, v)
				return errors.Join(err, ctx.Err())
			})
			if (found || err != nil) && !yield(kvscheduler.Actual[wire.Uplink, struct{}]{Name: name, V: v}, err) || err != nil {
				return
			}
		}
	}
}

// knownUplink is a card as it was applied, else as it is desired.
func knownUplink(view kvscheduler.View, ref kvscheduler.Ref) (wire.Uplink, bool) {
	v, _, ok := view.Applied(ref)
	if !ok {
		v, ok = view.Desired(ref)
	}
	u, is := v.(wire.Uplink)
	u.Drift = ""
	return u, ok && is
}

// takeCard moves the addresses and routes of a card to the link to the dataplane. At each point the node has its addresses and a
// way out, and repeating the move completes it:
//
//	addresses on the link -> settings of the card -> routes by the link, each in the place of the card's -> addresses off the card -> card deaf
func takeCard(h *handle, v wire.Uplink) error {
	return takeCardUntil(h, v, func(string) error { return nil })
}

// takeCardUntil is takeCard up to the step before which stop, which is told what comes, returns an error.
func takeCardUntil(h *handle, v wire.Uplink, stop func(next string) error) error {
	card, err := h.link(v.Card.Link)
	if err != nil {
		return err
	}
	to, err := h.link(v.To)
	if err != nil {
		return err
	}
	if err := knowsRoutes(h, card, v.Card); err != nil {
		return err
	}
	for _, step := range moves(h, card, to, v) {
		if err := stop(step.what); err != nil {
			return err
		}
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// move is one step of taking a card.
type move struct {
	what string
	do   func() error
}

// moves are the steps in order. The kernel forgets neighbours with the last address of a link, so they come after the first.
func moves(h *handle, card, to netlink.Link, v wire.Uplink) []move {
	var list []move
	add := func(what string, do func() error) { list = append(list, move{what, do}) }
	for _, a := range v.Card.Addresses {
		add(fmt.Sprintf("address %s on %s", a.Prefix, v.To), func() error {
			return addAddress(h, "", wire.LinuxAddress{Link: v.To, Prefix: alone(a)})
		})
	}
	// With an address on the link the move has begun: a card whose settings have changed is not read as it is then.
	add("prepare "+v.Card.Link, func() error { return prepareCard(h, card, v.Card) })
	for _, n := range gateways(v) {
		add(fmt.Sprintf("neighbour %s of %s", n.Address, v.To), func() error { return setNeighbour(h, "", n) })
	}
	for _, r := range v.Card.Routes {
		add(fmt.Sprintf("route to %s by %s", r.Destination, v.To), func() error { return replaceRoute(h, movedRoute(to, v, r)) })
	}
	for _, a := range v.Card.Addresses {
		add(fmt.Sprintf("address %s off %s", a.Prefix, v.Card.Link), func() error {
			if err := h.AddrDel(card, &netlink.Addr{IPNet: ipNet(a.Prefix)}); !isGone(err) {
				return err
			}
			return nil
		})
	}
	add("keep the kernel from what "+v.Card.Link+" receives", func() error { return writeDeafTable(v.Card.Link) })
	return list
}

// knowsRoutes refuses a card that got a route since it was read: the route would be lost with the addresses.
func knowsRoutes(h *handle, l netlink.Link, card wire.Card) error {
	now, err := cardRoutes(h, l, card)
	if err != nil {
		return err
	}
	for _, r := range now {
		known := slices.ContainsFunc(card.Routes, func(k wire.CardRoute) bool { return k.Destination == r.Destination })
		if !known && r.Protocol != unix.RTPROT_KERNEL {
			return fmt.Errorf("%s has got a route to %s since the agent read it: start the agent again", card.Link, r.Destination)
		}
	}
	return nil
}

// prepareCard has the card receive all multicast, for it no longer knows which the dataplane's addresses need, frames as they
// were sent, and no addresses by advertisements.
func prepareCard(h *handle, l netlink.Link, card wire.Card) error {
	if card.AcceptRA != "" && !says(acceptRA(card.Link), "0") {
		if err := os.WriteFile(acceptRA(card.Link), []byte("0"), 0); err != nil {
			return fmt.Errorf("keep %s from following router advertisements: %w", card.Link, err)
		}
	}
	if l.Attrs().RawFlags&unix.IFF_ALLMULTI == 0 {
		if err := h.LinkSetAllmulticastOn(l); err != nil {
			return fmt.Errorf("have %s receive all multicast: %w", card.Link, err)
		}
	}
	if off, err := isOff(card.Link, card.Features); off || err != nil {
		return err
	}
	return setFeatures(card.Link, card.Features, func(bool) bool { return false })
}

// alone is an address without its subnet: that is behind the dataplane.
func alone(a wire.CardAddress) netip.Prefix {
	return netip.PrefixFrom(a.Prefix.Addr(), a.Prefix.Addr().BitLen())
}

// movedProtocol marks the routes of a card that the dataplane owns, which are none of kind linux.route.
const movedProtocol = 202

// movedRoute is a route of the card as it is by the link to the dataplane: at the same place among all routes.
func movedRoute(to netlink.Link, v wire.Uplink, r wire.CardRoute) *netlink.Route {
	family := wire.FamilyOf(r.Destination.Addr())
	moved := &netlink.Route{
		LinkIndex: to.Attrs().Index, Dst: ipNet(r.Destination), Gw: v.Gateway(family).AsSlice(), Priority: r.Metric, Protocol: movedProtocol,
		Table: unix.RT_TABLE_MAIN, MTU: r.MTU, AdvMSS: r.AdvMSS, Flags: int(netlink.FLAG_ONLINK),
	}
	if source := movedSource(v, r); source.IsValid() {
		moved.Src = source.AsSlice()
	}
	return moved
}

// movedSource is the address that the kernel sends from. Of IPv4 it would look for one in the subnet of the gateway, which is
// the dataplane now; of IPv6 it compares all with the destination, as before.
func movedSource(v wire.Uplink, r wire.CardRoute) netip.Addr {
	if r.Source.IsValid() || r.Destination.Addr().Is6() {
		return r.Source
	}
	for _, a := range v.Card.Addresses {
		if r.Gateway.IsValid() && a.Prefix.Contains(r.Gateway) || a.Prefix.Masked() == r.Destination {
			return a.Prefix.Addr()
		}
	}
	return v.Card.Address(wire.IP4)
}

// gateways are the dataplane's end as neighbours of the kernel's.
func gateways(v wire.Uplink) (neighbours []wire.LinuxNeighbour) {
	for _, a := range v.Gateways {
		neighbours = append(neighbours, wire.LinuxNeighbour{Link: v.To, Address: a, MAC: v.MAC})
	}
	return neighbours
}

// replaceRoute puts a route in the place of the one with its destination and metric.
func replaceRoute(h *handle, r *netlink.Route) error {
	if err := h.RouteReplace(r); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// giveBack is takeCard in reverse. A card that is gone takes its addresses along.
func giveBack(h *handle, v wire.Uplink) error {
	err := removeTable(deafTable())
	to, none := h.link(v.To)
	if none != nil && !errors.Is(none, errNoLink) {
		return errors.Join(err, none)
	}
	card, gone := h.link(v.Card.Link)
	switch {
	case gone == nil:
		err = errors.Join(err, restoreCard(h, card, v.Card))
	case !errors.Is(gone, errNoLink):
		return errors.Join(err, gone)
	}
	if err != nil || none != nil {
		return err
	}
	for _, r := range v.Card.Routes {
		if gone := h.RouteDel(movedRoute(to, v, r)); gone != nil && !isGone(gone) {
			err = errors.Join(err, fmt.Errorf("remove the route to %s by %s: %w", r.Destination, v.To, gone))
		}
	}
	for _, n := range gateways(v) {
		if gone := deleteNeighbour(h, n); gone != nil && !isGone(gone) {
			err = errors.Join(err, fmt.Errorf("remove neighbour %s of %s: %w", n.Address, v.To, gone))
		}
	}
	for _, a := range v.Card.Addresses {
		if gone := h.AddrDel(to, &netlink.Addr{IPNet: ipNet(alone(a))}); gone != nil && !isGone(gone) {
			err = errors.Join(err, fmt.Errorf("remove address %s from %s: %w", a.Prefix, v.To, gone))
		}
	}
	return err
}

// restoreCard gives a card what it had.
func restoreCard(h *handle, l netlink.Link, card wire.Card) error {
	if err := setUp(h, l, true); err != nil {
		return err
	}
	for _, a := range card.Addresses {
		if err := h.AddrAdd(l, kernelCardAddress(a)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("give address %s back to %s: %w", a.Prefix, card.Link, err)
		}
	}
	for _, withGateway := range []bool{false, true} { // gateways are reached by the others
		for _, r := range card.Routes {
			if r.Gateway.IsValid() != withGateway {
				continue
			}
			if err := replaceRoute(h, kernelCardRoute(l, r)); err != nil {
				return fmt.Errorf("give the route to %s back to %s: %w", r.Destination, card.Link, err)
			}
		}
	}
	err := removeSurplus(h, l, card)
	if card.AcceptRA != "" {
		value := card.AcceptRA
		if value == "1" && says("/proc/sys/"+forwarding6, "1") {
			value = "2" // as keepAdvertisements does: the node has become a router meanwhile
		}
		err = errors.Join(err, os.WriteFile(acceptRA(card.Link), []byte(value), 0))
	}
	if !card.AllMulticast {
		err = errors.Join(err, h.LinkSetAllmulticastOff(l))
	}
	return errors.Join(err, setFeatures(card.Link, card.Features, func(was bool) bool { return was }))
}

// removeSurplus removes the routes that the kernel made for the addresses, and that the card did not have: of another metric.
func removeSurplus(h *handle, l netlink.Link, card wire.Card) error {
	now, err := cardRoutes(h, l, card)
	if err != nil {
		return err
	}
	for _, r := range now {
		had := slices.ContainsFunc(card.Routes, func(k wire.CardRoute) bool { return k.Destination == r.Destination && k.Metric == r.Metric })
		if had || r.Protocol != unix.RTPROT_KERNEL {
			continue
		}
		if gone := h.RouteDel(kernelCardRoute(l, r)); gone != nil && !isGone(gone) {
			err = errors.Join(err, fmt.Errorf("remove the route to %s from %s: %w", r.Destination, card.Link, gone))
		}
	}
	return err
}

func kernelCardRoute(l netlink.Link, r wire.CardRoute) *netlink.Route {
	k := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: ipNet(r.Destination), Priority: r.Metric, Protocol: netlink.RouteProtocol(r.Protocol),
		Scope: netlink.Scope(r.Scope), Table: unix.RT_TABLE_MAIN, MTU: r.MTU, AdvMSS: r.AdvMSS, Flags: r.Flags,
	}
	if r.Gateway.IsValid() {
		k.Gw = r.Gateway.AsSlice()
	}
	if r.Source.IsValid() {
		k.Src = r.Source.AsSlice()
	}
	return k
}

// readUplink tells whether a card, or a part of it, is moved, and what is not as the value says.
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
	deaf, err := isDeaf(v.Card.Link)
	if err != nil {
		return have, false, err
	}
	found = deaf
	for _, a := range v.Card.Addresses {
		is := slices.Contains(moved, alone(a))
		found = found || is
		if !is {
			have.Drift = fmt.Sprintf("address %s is not on %s", a.Prefix, v.To)
		}
	}
	if !found {
		return have, false, nil
	}
	if have.Drift == "" && !deaf {
		have.Drift = fmt.Sprintf("the kernel processes what %s receives", v.Card.Link)
	}
	if have.Drift == "" {
		have.Drift, err = unmovedOf(h, to, v)
	}
	return have, true, err
}

// unmovedOf says what of routes and card is not as a taken card has it; "": nothing.
func unmovedOf(h *handle, to netlink.Link, v wire.Uplink) (string, error) {
	for _, n := range gateways(v) {
		if have, found, err := findNeighbour(h, "", n); err != nil || !found || have != n {
			return fmt.Sprintf("neighbour %s of %s is not the dataplane", n.Address, v.To), err
		}
	}
	for _, r := range v.Card.Routes {
		want := movedRoute(to, v, r)
		there, err := routesIn(h, unix.RT_TABLE_MAIN, r.Destination)
		if err != nil {
			return "", err
		}
		if !slices.ContainsFunc(there, func(k netlink.Route) bool {
			return k.LinkIndex == want.LinkIndex && k.Priority == want.Priority && k.Gw.Equal(want.Gw) && k.Src.Equal(want.Src) && k.MTU == want.MTU
		}) {
			return fmt.Sprintf("the route to %s with metric %d is not by %s", r.Destination, r.Metric, v.To), nil
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
	case !off, card.Attrs().RawFlags&unix.IFF_ALLMULTI == 0, v.Card.AcceptRA != "" && !says(acceptRA(v.Card.Link), "0"):
		return fmt.Sprintf("%s merges packets, receives not all multicast or follows router advertisements", v.Card.Link), nil
	}
	return "", nil
}
