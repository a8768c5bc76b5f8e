package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/wire"
)

// uplink is the link by which other nodes are reached.
type uplink struct {
	address netip.Addr // of the node, at which others reach it
	name    string
	mtu     int  // 0: not known
	owned   bool // by the dataplane
}

// Bounds of the wait for the uplink, and time between looks at it later.
const (
	uplinkWait = 15 * time.Second
	uplinkLook = 30 * time.Second
)

// errUnreachable is the fault of a node of which the API server knows no such address.
var errUnreachable = errors.New("the node has no address at which the tunnels of others could reach it")

// outerAddress is that at which other nodes reach this one: of the family of the tunnels.
func (a *Agent) outerAddress(addresses []netip.Addr) (netip.Addr, bool) {
	for _, n := range addresses {
		if a.config.Kubernetes.Tunnel == ipnet.TunnelNone || n.Is4() == (a.config.Kubernetes.Tunnel == ipnet.TunnelVXLAN4) {
			return n, true
		}
	}
	return netip.Addr{}, false
}

// findUplink finds the link that has the node's address. One that is not there yet is waited for; in bounds, unless it is
// required: then the node goes on without, for pods of one node need none.
func (a *Agent) findUplink(ctx context.Context, addresses []netip.Addr) (uplink, error) {
	address, has := a.outerAddress(addresses)
	if !has {
		a.log.Error("no uplink", "err", errUnreachable, "tunnel", a.config.Kubernetes.Tunnel, "addresses", fmt.Sprint(addresses))
		return uplink{}, nil
	}
	if a.card != nil {
		return a.ownUplink(address)
	}
	bound := uplinkWait
	if a.config.Kubernetes.RequireUplink {
		bound = 0 // none
	}
	look := func() (uplink, error) {
		name, mtu, err := linux.LinkOf(address)
		if err != nil {
			a.health.Set(health.Started, false, "starting: waits for the uplink: "+err.Error())
		}
		return uplink{address: address, name: name, mtu: mtu}, err
	}
	found, err := backoff.Retry(ctx, look, backoff.WithMaxElapsedTime(bound))
	switch {
	case ctx.Err() != nil:
		return found, ctx.Err()
	case err != nil:
		a.log.Error("uplink not found, going on without", "err", err)
		return uplink{address: address}, nil
	}
	a.log.Info("uplink", "link", found.name, "address", found.address.String(), "mtu", found.mtu)
	return found, nil
}

// ownUplink is the card that the dataplane owns: it must have the address that other nodes know.
func (a *Agent) ownUplink(address netip.Addr) (uplink, error) {
	card := a.card.Card
	if !slices.ContainsFunc(card.Addresses, func(k wire.CardAddress) bool { return k.Prefix.Addr() == address }) {
		return uplink{}, fmt.Errorf("dataplane.uplink: network card %s does not have %s, at which other nodes reach this one", card.Link, address)
	}
	return uplink{address: address, name: card.Link, mtu: card.MTU, owned: true}, nil
}

// followUplink says in the node's health when the uplink is missing, or is another one than the agent started with.
func (a *Agent) followUplink(ctx context.Context) error {
	tick := time.NewTicker(uplinkLook)
	defer tick.Stop()
	for {
		fault := a.uplink.fault()
		a.health.Set(health.Uplink, fault == "", fault)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// fault says what is wrong with the uplink now; "": nothing.
func (u uplink) fault() string {
	if !u.address.IsValid() {
		return errUnreachable.Error()
	}
	name, mtu, err := linux.LinkOf(u.address)
	switch {
	case err != nil:
		return err.Error()
	case u.owned:
		return u.ownedFault()
	case mtu < u.mtu:
		return fmt.Sprintf("link %s carries %d bytes, and %d when the agent started: restart the agent and the pods", name, mtu, u.mtu)
	case name != u.name:
		return fmt.Sprintf("link %s has the node's address, and %q when the agent started: restart the agent", name, u.name)
	}
	return ""
}

// ownedFault says what is wrong with a card that the dataplane owns; "": nothing.
func (u uplink) ownedFault() string {
	now, err := linux.ReadCard(u.name)
	if err == nil {
		err = linux.LinkFault(u.name)
	}
	switch {
	case err != nil:
		return err.Error()
	case now.MTU < u.mtu:
		return fmt.Sprintf("link %s carries %d bytes, and %d when the agent started: restart the agent and the pods", u.name, now.MTU, u.mtu)
	}
	return ""
}
