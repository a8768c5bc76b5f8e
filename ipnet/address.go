package ipnet

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// AddressPod gives the main interface of an attachment that awaits them its addresses; all or nothing. On the L2 network
// that it is on another plugin says all: prefixes, gateways and routes are as it gave them.
func (n *Network) AddressPod(_ context.Context, ev *pod.AddressPod, t *eventloop.Txn) error {
	if ev.Repeated {
		return nil
	}
	c, main := n.wired[ev.Key], -1
	if ev.Attachment != nil {
		main = ev.Main()
	}
	if c == nil || c.displaced || main < 0 {
		return fmt.Errorf("%s: there is no interface that awaits addresses", ev)
	}
	if err := checkDelegated(ev, &ev.Requested); err != nil {
		return err
	}
	addressed(&ev.Attachment.Interfaces[main], &ev.Requested)
	if err := unambiguous(ev, ev.Attachment.Interfaces); err != nil {
		return err
	}
	before := n.podValues(c.Attachment)
	n.remember(ev.Attachment, t)
	replace(t, before, n.podValues(ev.Attachment))
	return nil
}

// addressed puts into an interface what another plugin gave, of each destination the first route.
func addressed(i *pod.Interface, r *pod.Requested) {
	i.Addresses, i.Gateways, i.Pools = r.Delegated, r.DelegatedGateways, make([]string, len(r.Delegated))
	for _, route := range r.Delegation.Routes {
		at := slices.IndexFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() == route.Destination.Addr().Is4() })
		isThere := func(o pod.Route) bool { return o.Destination == route.Destination }
		if at < 0 || slices.ContainsFunc(i.Routes, isThere) {
			continue
		}
		if !route.Gateway.IsValid() {
			route.Gateway = i.Gateways[at]
		}
		i.Routes = append(i.Routes, route)
	}
}
