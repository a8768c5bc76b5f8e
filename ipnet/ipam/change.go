package ipam

import (
	"fmt"
	"slices"
)

// SetPools makes these the pools, in that order, as far as their addresses allow it. One of which somebody has an address
// stays with its prefix, and, if it is not wanted any more, disabled and last. The errors are those of the pools that are not as they
// are wanted, by name.
func (a *Allocator) SetPools(pools []Pool) map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused := make(map[string]error)
	var after, leaving []*stock
	for _, s := range a.stocks {
		if at := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == s.Name }); at >= 0 && s.fits(pools[at]) {
			continue
		}
		if s.isUsedLocked(a) {
			refused[s.Name] = fmt.Errorf("its addresses are used: it stays %s, disabled", s.Prefix)
			leaving = append(leaving, s)
		}
	}
	for _, p := range pools {
		if refused[p.Name] != nil {
			continue
		}
		s := a.stockNamedLocked(p.Name)
		if s == nil || !s.fits(p) {
			if err := admissible(p, after, leaving); err != nil {
				refused[p.Name] = err
				continue
			}
			s = newStock(p, a.handles, a.now())
		}
		s.rename(p)
		after = append(after, s)
	}
	for _, s := range leaving {
		p := s.Pool
		p.Disabled = true
		s.rename(p)
	}
	a.stocks = append(after, leaving...)
	return refused
}

// fits reports whether a pool has the addresses of another.
func (p Pool) fits(o Pool) bool { return p.Prefix == o.Prefix && p.Blocks == o.Blocks }

// rename gives a pool and its books what may change of it.
func (s *stock) rename(p Pool) {
	s.Pool = p
	for _, b := range s.books {
		b.Pool = p
	}
}

// isUsedLocked reports whether an address is in use or cooling down, by a pod, or by the node in a block.
func (s *stock) isUsedLocked(a *Allocator) bool {
	now := a.now()
	return slices.ContainsFunc(s.books, func(b *book) bool {
		if s.Blocks {
			return !b.isEmpty(now)
		}
		counts := b.stats(now)
		return counts.Leased+counts.Used+counts.Cooling > 0
	})
}

func (a *Allocator) stockNamedLocked(name string) *stock {
	for _, s := range a.stocks {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// admissible refuses a pool that cannot be beside those that are taken.
func admissible(p Pool, lists ...[]*stock) error {
	pools := []Pool{p}
	seen := map[string]bool{p.Name: true}
	for _, stocks := range lists {
		for _, s := range stocks {
			if !seen[s.Name] {
				seen[s.Name], pools = true, append(pools, s.Pool)
			}
		}
	}
	return validPools(pools)
}
