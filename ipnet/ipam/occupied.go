package ipam

import (
	"maps"
	"net/netip"
	"slices"
)

// occupied are the addresses that machines have, such as this node on one of its links, and those that claims hold for
// their pods. They are granted to no other pod. A pod that had the address first keeps it. An entry of such an address
// that no holder has is in no queue of released entries.
type occupied struct {
	machines map[netip.Addr]string // who has the address, in words
	claims   map[netip.Addr]string // the claim
	by       map[netip.Addr]string // both
	sorted   []netip.Addr
}

// from says who has or holds an address; "" if it is free, or the claim holds it. The address of a machine is never free.
func (o *occupied) from(address netip.Addr, claim string) string {
	if by := o.by[address]; by != claim {
		return by
	}
	return ""
}

// within lists the occupied addresses from lowest to highest.
func (o *occupied) within(lowest, highest netip.Addr) []netip.Addr {
	from, _ := slices.BinarySearchFunc(o.sorted, lowest, netip.Addr.Compare)
	to, found := slices.BinarySearchFunc(o.sorted, highest, netip.Addr.Compare)
	if found {
		to++
	}
	return o.sorted[from:max(from, to)]
}

// occupancy sets the occupied addresses of all pools.
type occupancy struct{ *ledger }

// Occupy replaces the addresses that machines have: none is granted until a later call lacks it. Values say who has the
// address, such as "link eth1 of this node". Leases stay, also their cool-downs. The costs are those of the difference
// to the last call; a lease does not depend on the number of addresses. The map must not change afterwards.
func (o *occupancy) Occupy(by map[netip.Addr]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.occupied.machines = by
	o.occupyLocked()
}

// HoldFor replaces the addresses that claims hold: only the request of the claim gets one. Values name the claims, as
// in [Request]. Otherwise it is like Occupy. Other nodes may borrow such an address for the pod of the claim.
func (o *occupancy) HoldFor(claims map[netip.Addr]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.occupied.claims = claims
	o.occupyLocked()
}

func (o *occupancy) occupyLocked() {
	before := o.occupied.by
	by := make(map[netip.Addr]string, len(o.occupied.claims)+len(o.occupied.machines))
	maps.Copy(by, o.occupied.claims)
	maps.Copy(by, o.occupied.machines)
	for address := range by {
		if _, was := before[address]; !was {
			o.eachBlockOfLocked(address, func(b *blockState) { b.occupy(address) })
		}
	}
	o.occupied.by = by
	o.occupied.sorted = slices.SortedFunc(maps.Keys(by), netip.Addr.Compare)
	for address := range before {
		if _, stays := by[address]; !stays {
			o.eachBlockOfLocked(address, func(b *blockState) { b.vacate(address) })
		}
	}
}

// Occupant says which machine has an address, in the words of Occupy; "" if none has it.
func (o *occupancy) Occupant(address netip.Addr) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.occupied.by[address]
}
