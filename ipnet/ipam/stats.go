package ipam

import (
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Stats are the counts of one pool, or of one block; their sum is the number of its addresses for pods. Where that is more than a
// number can hold, Free stays at the highest.
type Stats struct {
	Pool
	Free, Leased, Used, Cooling uint64
}

// Stats counts, pool by pool in the order of the configuration.
func (a *Allocator) Stats() []Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	stats := make([]Stats, 0, len(a.stocks))
	for _, s := range a.stocks {
		stats = append(stats, s.stats(now))
	}
	return stats
}

func (s *stock) stats(now time.Time) Stats {
	sum := Stats{Pool: s.Pool}
	for _, b := range s.books {
		of := b.stats(now)
		sum.Leased, sum.Used, sum.Cooling = sum.Leased+of.Leased, sum.Used+of.Used, sum.Cooling+of.Cooling
		if sum.Free+of.Free < sum.Free {
			sum.Free = math.MaxUint64
			continue
		}
		sum.Free += of.Free
	}
	return sum
}

// stats are those of one block; a closed one has no free addresses.
func (b *book) stats(now time.Time) Stats {
	s := Stats{Pool: b.Pool, Leased: b.leased, Used: b.used}
	for _, e := range b.released {
		if e.FreeAt.After(now) {
			s.Cooling++
		}
	}
	size, counted := b.size()
	switch {
	case b.closed:
	case counted:
		s.Free = size - b.reserved - s.Leased - s.Used - s.Cooling
	default:
		s.Free = math.MaxUint64
	}
	return s
}

// size is the number of addresses from the lowest to the highest; not counted where that is more than a number can hold.
func (b *book) size() (n uint64, counted bool) {
	if b.highest.Less(b.lowest) {
		return 0, true
	}
	n = lower64(b.highest) - lower64(b.lowest) + 1
	if hostBits(b.block) > 64 || n == 0 {
		return math.MaxUint64, false
	}
	return n, true
}

// lower64 are the lower 64 bits of an address.
func lower64(a netip.Addr) uint64 {
	bytes := a.As16()
	return binary.BigEndian.Uint64(bytes[8:])
}

// Leases lists the addresses that are not free, by pool and address.
func (a *Allocator) Leases() []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var leases []Lease
	for _, b := range a.booksLocked() {
		leases = append(leases, b.leases(now)...)
	}
	return leases
}

// Held lists what the holder has, in the order of the pools.
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
func (a *Allocator) Pools() []Pool {
	pools := make([]Pool, 0, len(a.stocks))
	for _, s := range a.stocks {
		pools = append(pools, s.Pool)
	}
	return pools
}

// Remembered lists every lease of pods that is remembered, those of idle addresses too: all that may be kept of the
// pools.
func (a *Allocator) Remembered() []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var leases []Lease
	for _, b := range a.booksLocked() {
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
