package ipnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Found is a main interface that was found on the machine when what was kept of it is lost.
type Found struct {
	Object     string         // name in the dataplane
	Netns      pod.Netns      // that its Linux end is in
	Name       string         // of the Linux end
	Alias      string         // of the Linux end
	MAC        wire.MAC       // of the Linux end
	MTU        int            // bytes
	Neighbours []netip.Addr   // that the dataplane knows there: the addresses that were given to the Linux end
	Addresses  []netip.Prefix // of the Linux end; asked where there are no neighbours, for the pod may have changed them
}

// whole are the addresses of the whole length, by the more trustworthy witness.
func (f Found) whole() []netip.Addr {
	if len(f.Neighbours) > 0 {
		return f.Neighbours
	}
	var addresses []netip.Addr
	for _, p := range f.Addresses {
		if p.IsSingleIP() {
			addresses = append(addresses, p.Addr())
		}
	}
	return addresses
}

// Reconstruct makes the attachment of an interface anew: as it was, but for what the machine does not know, which is the
// pod's name, its annotations, and when it was added: that is now. Restore then takes it over. It refuses what it cannot
// be sure of.
func (n *Network) Reconstruct(f Found) (*pod.Attachment, error) {
	key, err := keyOf(f.Alias)
	if err != nil {
		return nil, err
	}
	if key.IfName != f.Name || objectName(key, key.IfName) != f.Object {
		return nil, fmt.Errorf("link %s of %s bears the alias of another interface: %q", f.Name, f.Object, f.Alias)
	}
	if !f.MAC.IsUnicast() || f.MTU <= 0 {
		return nil, fmt.Errorf("link %s has MAC %q and MTU %d: not what was given to it", f.Name, f.MAC, f.MTU)
	}
	leases, err := n.leased(f)
	if err != nil {
		return nil, err
	}
	main := n.interfaceOf(key, wish{name: f.Name, kind: pod.TypeTap, object: f.Object, mac: f.MAC, mtu: f.MTU}, leases)
	return &pod.Attachment{Key: key, Netns: f.Netns, Created: n.config.Now().UTC(), Interfaces: []pod.Interface{main}}, nil
}

// keyOf is the inverse of aliasOf.
func keyOf(alias string) (pod.Key, error) {
	text, ours := strings.CutPrefix(alias, "weft:")
	parts := strings.Split(text, "/")
	if !ours || len(parts) != 3 || slices.Contains(parts, "") {
		return pod.Key{}, fmt.Errorf("alias %q does not name an attachment", alias)
	}
	return pod.Key{Network: parts[0], ContainerID: parts[1], IfName: parts[2]}, nil
}

// leased are the addresses that were given to the interface, IPv4 first.
func (n *Network) leased(f Found) ([]ipam.Lease, error) {
	var leases []ipam.Lease
	for _, family := range []wire.Family{wire.IP4, wire.IP6} {
		address, err := n.given(family, f.whole())
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", f.Name, err)
		}
		if address.IsValid() {
			leases = append(leases, ipam.Lease{Address: address, Pool: n.poolOf(address)})
		}
	}
	if len(leases) == 0 {
		return nil, fmt.Errorf("link %s has no address", f.Name)
	}
	return leases, nil
}

// given is the one address of a family that can be ours: one of a pool, or, since pools change, the only one; not valid
// if there is none.
func (n *Network) given(family wire.Family, addresses []netip.Addr) (netip.Addr, error) {
	var ofPools, all []netip.Addr
	for _, a := range addresses {
		if wire.FamilyOf(a) != family || a.IsLinkLocalUnicast() || a.IsLoopback() {
			continue
		}
		all = append(all, a)
		if n.poolOf(a) != "" {
			ofPools = append(ofPools, a)
		}
	}
	if len(ofPools) > 0 {
		all = ofPools
	}
	switch len(all) {
	case 0:
		return netip.Addr{}, nil
	case 1:
		return all[0], nil
	}
	return netip.Addr{}, errors.New("several addresses of one family, and no telling which of them was given: " + fmt.Sprint(all))
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
	}
}

// withhold keeps from a new network what it has of the addresses of unknown interfaces: one of them may be its own.
func (n *Network) withhold(c *custom) {
	for _, l := range n.withheld {
		if slices.ContainsFunc(c.Network.CIDRs, func(p netip.Prefix) bool { return p.Contains(l.Address) }) {
			if err := c.addresses.Restore([]ipam.Lease{l}); err != nil {
				n.config.Log.Debug("address needs not be withheld", "network", c.Network.Name, "address", l.Address.String(), "err", err)
			}
		}
	}
}
