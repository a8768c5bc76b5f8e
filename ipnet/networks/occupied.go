package networks

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// Sources of addresses that machines have.
const (
	OfLinks = "links" // of this node
	OfMesh  = "mesh"  // of other nodes, and of external interfaces of the network default
)

// occupancy has the addresses that pods do not get, because machines have them or claims hold them.
type occupancy struct {
	*registry
	occupants occupants
	claims    atomic.Pointer[[]pod.IPAMClaim] // see HoldFor
	holding   sync.Mutex                      // of hold: an older list of claims must not follow a newer one
}

// HoldFor replaces the IPAMClaims, whose addresses no other pod of this node gets. A network ignores the claims of
// namespaces that it does not admit. Any goroutine may call it. The list must not change afterwards.
func (o *occupancy) HoldFor(claims []pod.IPAMClaim) {
	o.claims.Store(&claims)
	o.hold()
}

// hold makes the allocators hold the addresses of the claims. It follows each change of the claims or the networks.
func (o *occupancy) hold() {
	o.holding.Lock()
	defer o.holding.Unlock()
	customs := o.Customs()
	held := make(map[string]map[netip.Addr]string)
	for _, claim := range *o.claims.Load() {
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
	o.addresses.HoldFor(held[""])
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
func (o *occupancy) Occupy(source string, by map[netip.Addr]string) {
	o.occupants.mu.Lock()
	defer o.occupants.mu.Unlock()
	if was, known := o.occupants.of[source]; maps.Equal(was, by) && known {
		return
	}
	if o.occupants.of == nil {
		o.occupants.of = make(map[string]map[netip.Addr]string)
	}
	o.occupants.of[source] = by
	all := maps.Clone(o.occupants.of[OfMesh])
	if all == nil {
		all = make(map[netip.Addr]string)
	}
	maps.Copy(all, o.occupants.of[OfLinks])
	o.addresses.Occupy(all)
}

// Occupant says which machine has an address of the network default; "" if none is known.
func (o *occupancy) Occupant(a netip.Addr) string { return o.addresses.Occupant(a) }
