package networks

import (
	"maps"
	"net/netip"
	"sync"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// Sources of addresses that machines have.
const (
	OfLinks = "links" // of this node
	OfMesh  = "mesh"  // of other nodes, and of external interfaces of the network default
)

// HoldFor replaces the IPAMClaims, whose addresses no other pod of this node gets. A network ignores the claims of
// namespaces that it does not admit. Any goroutine may call it. The list must not change afterwards.
func (n *Networks) HoldFor(claims []pod.IPAMClaim) {
	n.claims.Store(&claims)
	n.hold()
}

// hold makes the allocators hold the addresses of the claims. It follows each change of the claims or the networks.
func (n *Networks) hold() {
	customs := n.Customs()
	held := make(map[string]map[netip.Addr]string)
	for _, claim := range *n.claims.Load() {
		network := desired.NetworkOf(claim.Network)
		if c := customs[network]; c != nil && !c.Network.Admits(claim.Namespace) {
			continue
		}
		if held[network] == nil {
			held[network] = make(map[netip.Addr]string)
		}
		for _, a := range claim.Addresses {
			held[network][a] = claim.String()
		}
	}
	n.addresses.HoldFor(held[""])
	for name, c := range customs {
		if c.addresses != nil {
			c.addresses.HoldFor(held[name])
		}
	}
}

// occupants are the addresses that machines have, by source.
type occupants struct {
	mu sync.Mutex
	of map[string]map[netip.Addr]string
}

// Occupy replaces the addresses of a source that no pod on the network default gets: machines have them, and the node
// routes packets of pods there. Values say who has the address. Other networks have no route to the node, so a pod
// there may have such an address. Any goroutine may call it. The map must not change afterwards.
func (n *Networks) Occupy(source string, by map[netip.Addr]string) {
	n.occupants.mu.Lock()
	defer n.occupants.mu.Unlock()
	if was, known := n.occupants.of[source]; maps.Equal(was, by) && known {
		return
	}
	if n.occupants.of == nil {
		n.occupants.of = make(map[string]map[netip.Addr]string)
	}
	n.occupants.of[source] = by
	all := maps.Clone(n.occupants.of[OfMesh])
	if all == nil {
		all = make(map[netip.Addr]string)
	}
	maps.Copy(all, n.occupants.of[OfLinks])
	n.addresses.Occupy(all)
}

// Occupant says which machine has an address of the network default; "" if none is known.
func (n *Networks) Occupant(a netip.Addr) string { return n.addresses.Occupant(a) }
