package ipam

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ledger has the addresses of all pools, under one lock.
type ledger struct {
	coolDown time.Duration
	now      func() time.Time

	mu    sync.Mutex
	pools []*poolState // in the order in which they are tried
	*shared
}

func (l *ledger) wantedLocked(addresses []netip.Addr) (map[bool]netip.Addr, error) {
	wanted := make(map[bool]netip.Addr)
	for _, address := range addresses {
		if l.poolOfLocked(address) == nil {
			return nil, ErrOutside{Address: address}
		}
		if wanted[address.Is4()].IsValid() {
			return nil, errors.New("more than one address of a family is requested")
		}
		wanted[address.Is4()] = address
	}
	return wanted, nil
}

// familyLocked returns the pools of a family: the named ones in that order, or all enabled pools without namespaces.
func (l *ledger) familyLocked(is4 bool, names []string) []*poolState {
	var pools []*poolState
	for _, s := range l.pools {
		if s.Prefix.Addr().Is4() != is4 {
			continue
		}
		if slices.Contains(names, s.Name) || names == nil && !s.Disabled && len(s.Namespaces) == 0 {
			pools = append(pools, s)
		}
	}
	slices.SortStableFunc(pools, func(x, y *poolState) int {
		return cmp.Compare(slices.Index(names, x.Name), slices.Index(names, y.Name))
	})
	return pools
}

func (l *ledger) restorableLocked(address netip.Addr) (*blockState, error) {
	s := l.poolOfLocked(address)
	if s == nil {
		return nil, ErrOutside{Address: address}
	}
	b := s.blockOf(address)
	if b == nil {
		return nil, ErrOutside{Address: address, Pool: s.Name, Elsewhere: true}
	}
	return b, b.restorable(address)
}

// unreserveLocked removes the entry of an address that is in the given state.
func (l *ledger) unreserveLocked(address netip.Addr, state State) *blockState {
	s := l.poolOfLocked(address)
	if s == nil {
		return nil
	}
	b := s.blockOf(address)
	if b == nil || b.entries[address] == nil || b.entries[address].State != state {
		return nil
	}
	delete(b.entries, address)
	b.reserved--
	b.giveBack(address)
	return b
}

func (l *ledger) blockLocked(block netip.Prefix) *blockState {
	s := l.poolOfLocked(block.Addr())
	if s == nil || !s.Blocks {
		return nil
	}
	return s.blockAt(block)
}

// ofHolderLocked returns the blocks in which a holder has an address, in the order of the pools.
func (l *ledger) ofHolderLocked(holder string) []*blockState {
	blocks := slices.Clone(l.handles[holder])
	if len(blocks) < 2 {
		return blocks
	}
	place := func(b *blockState) int {
		return slices.IndexFunc(l.pools, func(s *poolState) bool { return s.Prefix.Contains(b.block.Addr()) })
	}
	slices.SortStableFunc(blocks, func(x, y *blockState) int { return cmp.Compare(place(x), place(y)) })
	return blocks
}

func (l *ledger) eachBlockOfLocked(address netip.Addr, f func(*blockState)) {
	s := l.poolOfLocked(address)
	if s == nil {
		return
	}
	for _, b := range s.blocks {
		if b.block.Contains(address) {
			f(b)
		}
	}
}

// poolOfLocked returns the pool that contains an address; nil if there is none.
func (l *ledger) poolOfLocked(address netip.Addr) *poolState {
	for _, s := range l.pools {
		if s.Prefix.Contains(address) {
			return s
		}
	}
	return nil
}

// blocksLocked returns the blocks of all pools.
func (l *ledger) blocksLocked() []*blockState { return blocksOf(l.pools) }

func (l *ledger) poolNamedLocked(name string) *poolState {
	for _, s := range l.pools {
		if s.Name == name {
			return s
		}
	}
	return nil
}
