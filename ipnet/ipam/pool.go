package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

func validPools(pools []netaddr.Pool) error {
	for i, p := range pools {
		if err := p.Validate(); err != nil {
			return err
		}
		for _, other := range pools[:i] {
			if p.Name == other.Name {
				return fmt.Errorf("two pools have the name %s", p.Name)
			}
			if p.Prefix.Overlaps(other.Prefix) {
				return fmt.Errorf("pools %s (%s) and %s (%s) overlap", other.Name, other.Prefix, p.Name, p.Prefix)
			}
		}
	}
	return nil
}

// poolState is a pool and its blocks. A pool of one node is a single block.
type poolState struct {
	netaddr.Pool
	blocks []*blockState // in the order in which they were added
	*shared
}

func newPoolState(p netaddr.Pool, of *shared, now time.Time) *poolState {
	s := &poolState{Pool: p, shared: of}
	if !p.Blocks {
		b := newBlockState(p, p.Prefix, of)
		if own := p.Node(); own.IsValid() {
			b.reserve(Lease{Pool: p.Name, Address: own, Holder: InternalHolder, State: Internal, Since: now})
		}
		s.blocks = append(s.blocks, b)
	}
	return s
}

// isForPods reports whether pods can have an address of the pool.
func (s *poolState) isForPods(a netip.Addr) bool {
	return !a.Less(s.First()) && !s.Last().Less(a) && !s.Kept().Contain(a)
}

// blockOf returns the smallest block that contains an address; nil if there is none. A block of one address is borrowed
// from another node and takes precedence over a block around it.
func (s *poolState) blockOf(address netip.Addr) *blockState {
	var found *blockState
	for _, b := range s.blocks {
		if b.block.Contains(address) && (found == nil || found.block.Bits() < b.block.Bits()) {
			found = b
		}
	}
	return found
}

// blockAt returns the block with a prefix; nil if there is none.
func (s *poolState) blockAt(block netip.Prefix) *blockState {
	for _, b := range s.blocks {
		if b.block == block {
			return b
		}
	}
	return nil
}

func blocksOf(pools []*poolState) []*blockState {
	if len(pools) == 1 {
		return pools[0].blocks
	}
	var blocks []*blockState
	for _, s := range pools {
		blocks = append(blocks, s.blocks...)
	}
	return blocks
}

// SetPools replaces the pools. A pool with used addresses keeps its prefix; if it was removed or its prefix changed, it
// stays as the last one, disabled. The result has an error for each pool that was refused, by name.
func (a *Allocator) SetPools(pools []netaddr.Pool) map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused := make(map[string]error)
	var after, leaving []*poolState
	for _, s := range a.pools {
		at := slices.IndexFunc(pools, func(p netaddr.Pool) bool { return p.Name == s.Name })
		if at >= 0 && s.fits(pools[at]) {
			continue
		}
		if s.isUsedLocked(a) {
			refused[s.Name] = fmt.Errorf("addresses are in use: the pool stays %s, disabled", s.Prefix)
			leaving = append(leaving, s)
		}
	}
	for _, p := range pools {
		if refused[p.Name] != nil {
			continue
		}
		s := a.poolNamedLocked(p.Name)
		if s == nil || !s.fits(p) {
			if err := admissible(p, after, leaving); err != nil {
				refused[p.Name] = err
				continue
			}
			s = newPoolState(p, a.shared, a.now())
		}
		s.update(p)
		after = append(after, s)
	}
	for _, s := range leaving {
		p := s.Pool
		p.Disabled = true
		s.update(p)
	}
	a.pools = append(after, leaving...)
	return refused
}

// fits reports whether another pool has the same addresses.
func (s *poolState) fits(p netaddr.Pool) bool {
	return s.Prefix == p.Prefix && s.Blocks == p.Blocks && s.Node() == p.Node()
}

// update changes a pool except its addresses. Pods keep addresses that are reserved now.
func (s *poolState) update(p netaddr.Pool) {
	s.Pool = p
	for _, b := range s.blocks {
		b.setPool(p)
	}
}

// isUsedLocked reports whether a pod, or the node in a block, has an address that is in use or cools down.
func (s *poolState) isUsedLocked(a *Allocator) bool {
	now := a.now()
	return slices.ContainsFunc(s.blocks, func(b *blockState) bool {
		if s.Blocks {
			return !b.isEmpty(now)
		}
		counts := b.stats(now)
		return counts.Leased+counts.Used+counts.Cooling > 0
	})
}

// admissible rejects a pool that is invalid or overlaps accepted ones.
func admissible(p netaddr.Pool, lists ...[]*poolState) error {
	all := []netaddr.Pool{p}
	seen := map[string]bool{p.Name: true}
	for _, pools := range lists {
		for _, s := range pools {
			if !seen[s.Name] {
				seen[s.Name] = true
				all = append(all, s.Pool)
			}
		}
	}
	return validPools(all)
}

// stray records a used address whose block is not known yet, as a closed block of one address.
func (s *poolState) stray(l Lease) error {
	if l.Holder == "" {
		return fmt.Errorf("restore lease of %s: it has no holder", l.Address)
	}
	if held, ok := heldIn(s.blocks, l.Holder); ok {
		return fmt.Errorf("restore lease of %q on %s: it holds %s", l.Holder, l.Address, held.Address)
	}
	b := newBlockState(s.Pool, netaddr.Single(l.Address), s.shared)
	b.closed = true
	b.grant(l)
	b.commit(l.Holder)
	s.blocks = append(s.blocks, b)
	return nil
}
