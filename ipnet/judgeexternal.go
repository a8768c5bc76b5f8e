package ipnet

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

const (
	maxVLAN     = 4094
	maxLinkName = 15 // bytes
)

// judgeExternals are those interfaces that can be connected together, by name. Those that were connected before, just so,
// are judged first.
func (n *Network) judgeExternals(wanted []pod.External, refused map[string]string) map[string]pod.External {
	before, all := *n.externals.Load(), make(map[string]pod.External)
	for _, e := range wanted {
		if _, twice := all[e.Name]; twice {
			refused[e.Name] = "it is there twice"
		}
		e.Addresses = slices.SortedFunc(slices.Values(e.Addresses), netip.Prefix.Compare)
		all[e.Name] = e
	}
	age := func(e pod.External) int {
		if reflect.DeepEqual(before[e.Name], e) {
			return 0
		}
		return 1
	}
	joined := make(map[string]pod.External)
	for _, e := range slices.SortedFunc(maps.Values(all), func(x, y pod.External) int {
		return cmp.Or(cmp.Compare(age(x), age(y)), cmp.Compare(x.Name, y.Name))
	}) {
		if refused[e.Name] != "" {
			continue
		}
		if why := n.unconnectable(e, joined); why != "" {
			refused[e.Name] = why
			continue
		}
		joined[e.Name] = e
	}
	return joined
}

// unconnectable says why an interface cannot be connected beside others; "" if it can.
func (n *Network) unconnectable(e pod.External, others map[string]pod.External) string {
	c := n.custom(networkOf(e.Network))
	switch {
	case e.Network == pod.StubNetwork:
		return "the network stub is attached to nothing"
	case c == nil && isCustom(e.Network):
		return fmt.Sprintf("there is no network %q on this node yet", e.Network)
	}
	if why := n.unusable(e); why != "" {
		return why
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if why := n.collides(e, others[name]); why != "" {
			return why
		}
	}
	if c != nil && c.Network.Type == pod.L2 {
		if len(e.Addresses) > 0 {
			return fmt.Sprintf("network %s is bridged: its interfaces have no addresses", e.Network)
		}
		return ""
	}
	return n.wrongAddresses(e, c, others)
}

// unusable says why a link cannot be used at all.
func (n *Network) unusable(e pod.External) string {
	switch name := e.Interface; {
	case name == "" || len(name) > maxLinkName || strings.ContainsAny(name, "/ "):
		return fmt.Sprintf("%q is not the name of a link: it has 1 to %d bytes", name, maxLinkName)
	case name == n.config.HostLink || strings.HasPrefix(name, "weft"):
		return fmt.Sprintf("interface %s is Weft's own", name)
	case name == n.config.Uplink && e.VLAN == 0:
		return fmt.Sprintf("interface %s is the node's uplink: only a VLAN of it can be a network's", name)
	case e.VLAN < 0 || e.VLAN > maxVLAN:
		return fmt.Sprintf("VLAN %d is not within 1 and %d", e.VLAN, maxVLAN)
	}
	return ""
}

// collides says why an interface cannot be beside another one.
func (n *Network) collides(e, other pod.External) string {
	switch {
	case e.Interface != other.Interface:
		return ""
	case e.VLAN == other.VLAN && e.VLAN == 0:
		return fmt.Sprintf("interface %s is that of external interface %s", e.Interface, other.Name)
	case e.VLAN == other.VLAN:
		return fmt.Sprintf("VLAN %d of interface %s is that of external interface %s", e.VLAN, e.Interface, other.Name)
	case e.VLAN == 0 && n.isBridged(e) || other.VLAN == 0 && n.isBridged(other):
		// A bridge takes all frames of its link, those of VLANs with their tags.
		return fmt.Sprintf("interface %s is that of external interface %s too: of a bridged network it is the only one, or all have a VLAN", e.Interface, other.Name)
	}
	return ""
}

func (n *Network) isBridged(e pod.External) bool {
	c := n.custom(networkOf(e.Network))
	return c != nil && c.Network.Type == pod.L2
}

// wrongAddresses says what is wrong with the addresses of an interface of a routed network, c being nil for the network
// default.
func (n *Network) wrongAddresses(e pod.External, c *custom, others map[string]pod.External) string {
	if len(e.Addresses) == 0 {
		return fmt.Sprintf("network %s is routed: the interface needs an address", e.Network)
	}
	ranges, families := n.rangesOfPods(), n.pools.Load().families()
	if c != nil {
		ranges, families = c.Network.CIDRs, familiesOf(c.Network.CIDRs)
	}
	taken := make(map[netip.Prefix]string)
	for _, r := range ranges {
		taken[r] = "addresses of pods"
	}
	for _, other := range others {
		for _, p := range other.Addresses {
			if networkOf(other.Network) == networkOf(e.Network) {
				taken[p.Masked()] = "those of external interface " + other.Name
			}
		}
	}
	for _, p := range e.Addresses {
		a := p.Addr()
		if !isHost(a) || a.IsLinkLocalUnicast() {
			return fmt.Sprintf("%s is no address that others could reach", p)
		}
		if !slices.Contains(families, wire.FamilyOf(a)) {
			return fmt.Sprintf("network %s has no %s", e.Network, wire.FamilyOf(a))
		}
		for _, r := range slices.SortedFunc(maps.Keys(taken), netip.Prefix.Compare) {
			if r.Overlaps(p) {
				return fmt.Sprintf("%s overlaps %s, %s", p, r, taken[r])
			}
		}
		taken[p.Masked()] = "another address of its own"
	}
	return ""
}

// rangesOfPods are those of the network default, on all nodes.
func (n *Network) rangesOfPods() []netip.Prefix {
	var ranges []netip.Prefix
	for _, p := range n.pools.Load().all {
		ranges = append(ranges, p.Prefix)
	}
	for _, node := range n.mesh.nodes {
		ranges = append(ranges, n.defaultOverlay().blocksOf(node)...)
	}
	return ranges
}
