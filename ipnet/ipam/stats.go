package ipam

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// Stats has the counts of one pool or block; their sum is the number of its addresses for pods. Free saturates at the
// largest uint64. An occupied address that a pod has too counts as the pod's.
type Stats struct {
	netaddr.Pool
	Free, Leased, Used, Cooling, Occupied uint64
}

// Stats returns the counts of all pools, in the order of the configuration.
func (a *Allocator) Stats() []Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	stats := make([]Stats, 0, len(a.pools))
	for _, s := range a.pools {
		stats = append(stats, s.stats(now))
	}
	return stats
}

func (s *poolState) stats(now time.Time) Stats {
	sum := Stats{Pool: s.Pool}
	for _, b := range s.blocks {
		of := b.stats(now)
		sum.Leased = sum.Leased + of.Leased
		sum.Used = sum.Used + of.Used
		sum.Cooling = sum.Cooling + of.Cooling
		sum.Occupied = sum.Occupied + of.Occupied
		if sum.Free+of.Free < sum.Free {
			sum.Free = math.MaxUint64
			continue
		}
		sum.Free += of.Free
	}
	return sum
}

// stats returns the counts of a block; a closed block has no free addresses.
func (b *blockState) stats(now time.Time) Stats {
	s := Stats{Pool: b.Pool, Leased: b.leased, Used: b.used}
	if !b.closed {
		s.Occupied = uint64(len(b.skipped()))
	}
	for _, e := range b.released {
		if e.FreeAt.After(now) {
			s.Cooling++
		}
	}
	size, counted := b.size()
	switch {
	case b.closed:
	case counted:
		s.Free = size - b.skippedUnchosen() - b.reserved - s.Leased - s.Used - s.Cooling - s.Occupied
	default:
		s.Free = math.MaxUint64
	}
	return s
}

// Leases lists the addresses that are not free, by pool and address.
func (a *Allocator) Leases() []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var leases []Lease
	for _, b := range a.blocksLocked() {
		leases = append(leases, b.leases(now)...)
	}
	return leases
}

// Held lists the leases of a holder, in the order of the pools.
func (a *Allocator) Held(holder string) []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var leases []Lease
	for _, b := range a.ofHolderLocked(holder) {
		leases = append(leases, b.heldBy(holder).Lease)
	}
	return leases
}

// Pools lists the pools in the order of the configuration.
func (a *Allocator) Pools() []netaddr.Pool {
	pools := make([]netaddr.Pool, 0, len(a.pools))
	for _, s := range a.pools {
		pools = append(pools, s.Pool)
	}
	return pools
}

// Remembered lists all leases of pods, including those of idle addresses: all leases that may be stored.
func (a *Allocator) Remembered() []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var leases []Lease
	for _, b := range a.blocksLocked() {
		for _, e := range b.entries {
			if e.isPods() {
				leases = append(leases, e.Lease)
			}
		}
	}
	slices.SortFunc(leases, func(x, y Lease) int {
		return cmp.Or(strings.Compare(x.Pool, y.Pool), x.Address.Compare(y.Address))
	})
	return leases
}
