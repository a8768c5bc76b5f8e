package ipam

import (
	"cmp"
	"slices"
	"strings"
)

// Stats counts, pool by pool in the order of the configuration.
func (a *Allocator) Stats() []Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	stats := make([]Stats, 0, len(a.pools))
	for _, b := range a.pools {
		stats = append(stats, b.stats(now))
	}
	return stats
}

// Leases lists the addresses that are not free, by pool and address.
func (a *Allocator) Leases() []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var leases []Lease
	for _, b := range a.pools {
		leases = append(leases, b.leases(now)...)
	}
	return leases
}

// Held lists what the holder has, in the order of the pools.
func (a *Allocator) Held(holder string) []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var leases []Lease
	for _, b := range a.pools {
		if e := b.heldBy(holder); e != nil {
			leases = append(leases, e.Lease)
		}
	}
	return leases
}

// Pools lists the pools in the order of the configuration.
func (a *Allocator) Pools() []Pool {
	pools := make([]Pool, 0, len(a.pools))
	for _, b := range a.pools {
		pools = append(pools, b.Pool)
	}
	return pools
}

// Remembered lists every lease of pods that is remembered, those of idle addresses too: all that may be kept of the
// pools.
func (a *Allocator) Remembered() []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var leases []Lease
	for _, b := range a.pools {
		for _, e := range b.entries {
			if e.State != Internal {
				leases = append(leases, e.Lease)
			}
		}
	}
	slices.SortFunc(leases, func(x, y Lease) int {
		return cmp.Or(strings.Compare(x.Pool, y.Pool), x.Address.Compare(y.Address))
	})
	return leases
}
