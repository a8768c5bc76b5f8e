package ipnet

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/ipam"
)

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
