package ipnet

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// SetWithheld makes these the attachments whose objects in the dataplane are not desired. It is to be called before the loop
// runs; WithholdPods changes them later.
func (n *Network) SetWithheld(keys []pod.Key) { n.withheldPods.Store(setOf(keys)) }

// WithholdsOthers reports whether other attachments than these are withheld.
func (n *Network) WithholdsOthers(keys []pod.Key) bool {
	return !maps.Equal(*n.withheldPods.Load(), *setOf(keys))
}

// WithholdPods withholds the objects of the event's attachments from the dataplane, and desires those of the others.
func (n *Network) WithholdPods(_ context.Context, ev *pod.WithholdPods, t *eventloop.Txn) error {
	was, before := n.everything(), n.withheldPods.Swap(setOf(ev.Keys))
	t.OnRollback(func() error { n.withheldPods.Store(before); return nil })
	replace(t, was, n.everything())
	return nil
}

// forget ends the withholding of an attachment that is deleted.
func (n *Network) forget(key pod.Key, t *eventloop.Txn) {
	before := n.withheldPods.Load()
	if !(*before)[key] {
		return
	}
	after := maps.Clone(*before)
	delete(after, key)
	n.withheldPods.Store(&after)
	t.OnRollback(func() error { n.withheldPods.Store(before); return nil })
}

// desirable are the values of an attachment without those that are withheld.
func (n *Network) desirable(key pod.Key, v values) values {
	if !(*n.withheldPods.Load())[key] {
		return v
	}
	return slices.DeleteFunc(v, func(s eventloop.Setting) bool { return wire.IsDataplane(s.Key) })
}

func setOf(keys []pod.Key) *map[pod.Key]bool {
	set := make(map[pod.Key]bool, len(keys))
	for _, key := range keys {
		set[key] = true
	}
	return &set
}

// Withhold keeps addresses from being granted, for as long as this Network lives: those of an interface that could not be
// reconstructed, and that a pod may be using. Who has them already keeps them.
func (n *Network) Withhold(f Found) {
	addresses := slices.Clone(f.Neighbours)
	for _, p := range f.Addresses {
		addresses = append(addresses, p.Addr())
	}
	for _, a := range addresses {
		l := ipam.Lease{Address: a, Holder: f.Object + "/" + a.String(), State: ipam.Used, Since: n.config.Now().UTC()}
		n.withheld = append(n.withheld, l)
		if err := n.addresses.Restore([]ipam.Lease{l}); err != nil {
			n.config.Log.Debug("address needs not be withheld", "interface", f.Object, "address", a.String(), "err", err)
		}
		for _, c := range n.customNetworks() {
			n.withhold(c, l)
		}
	}
}

// withhold keeps an address of an unknown interface from a network: it may be the network's own.
func (n *Network) withhold(c *custom, l ipam.Lease) {
	if !slices.ContainsFunc(c.Network.CIDRs, func(p netip.Prefix) bool { return p.Contains(l.Address) }) {
		return
	}
	if err := c.addresses.Restore([]ipam.Lease{l}); err != nil {
		n.config.Log.Debug("address needs not be withheld", "network", c.Network.Name, "address", l.Address.String(), "err", err)
	}
}
