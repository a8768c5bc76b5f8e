package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// Pool is a prefix of one address family. Its first address (the network's), the node's own, which is the next one if
// Gateway does not name another, and in IPv4 the last one (broadcast) are not for pods.
type Pool struct {
	Name   string       `json:"name"` // unique, no slash
	Prefix netip.Prefix `json:"prefix"`

	Disabled   bool     `json:"disabled,omitempty"`   // no address is granted; granted addresses stay
	Namespaces []string `json:"namespaces,omitempty"` // namespaces of the pods; empty: all

	Gateway   netip.Addr     `json:"gateway,omitzero"`    // the node's own address; invalid: the lowest one
	NoGateway bool           `json:"noGateway,omitempty"` // the node has no address of the pool
	Reserved  netaddr.Ranges `json:"reserved,omitempty"`  // no pod gets them
	Excluded  netaddr.Ranges `json:"excluded,omitempty"`  // pods get them on request only

	// Blocks: nodes share the prefix, and each node allocates addresses of its own blocks.
	Blocks bool `json:"blocks,omitempty"`
}

// Admits reports whether pods of a namespace may have addresses of the pool.
func (p Pool) Admits(namespace string) bool {
	return len(p.Namespaces) == 0 || slices.Contains(p.Namespaces, namespace)
}

// Node returns the node's own address; in a pool that nodes share, an address that no pod has. It is invalid if the
// node has none.
func (p Pool) Node() netip.Addr {
	switch {
	case p.NoGateway:
		return netip.Addr{}
	case p.Gateway.IsValid():
		return p.Gateway
	}
	return p.Prefix.Masked().Addr().Next()
}

// kept are the addresses that no pod gets.
func (p Pool) kept() netaddr.Ranges {
	if own := p.Node(); own.IsValid() {
		return append(slices.Clip(p.Reserved), netaddr.Range{First: own, Last: own})
	}
	return p.Reserved
}

// unchosen are the addresses that no pod gets unless it requests them.
func (p Pool) unchosen() netaddr.Ranges { return append(p.kept(), p.Excluded...) }

// Validate rejects a pool without a usable address for pods.
func (p Pool) Validate() error {
	if p.Name == "" || strings.ContainsAny(p.Name, "/ \t\n") {
		return fmt.Errorf("pool %q: the name is empty or has a slash or blank", p.Name)
	}
	if err := validPrefix(p.Prefix); err != nil {
		return fmt.Errorf("pool %s: prefix %s: %w", p.Name, p.Prefix, err)
	}
	if own := p.Node(); own.IsValid() && (own.Less(p.first()) || p.last().Less(own)) {
		return fmt.Errorf("pool %s: gateway %s is not an address for hosts of %s", p.Name, own, p.Prefix)
	}
	return nil
}

func validPrefix(p netip.Prefix) error {
	a := p.Addr()
	switch {
	case !p.IsValid() || a.Is4In6() || a.Zone() != "":
		return errors.New("not an IPv4 or IPv6 prefix")
	case p != p.Masked():
		return fmt.Errorf("has host bits set: did you mean %s?", p.Masked())
	case hostBits(p) < 2:
		return errors.New("too small: the network, the node and a pod need at least two host bits")
	case a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified():
		return errors.New("not routable unicast addresses")
	}
	return nil
}

func hostBits(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }

// first returns the address from which on pods have addresses.
func (p Pool) first() netip.Addr { return p.Prefix.Addr().Next() }

// last returns the highest address for pods.
func (p Pool) last() netip.Addr {
	highest := netaddr.LastOf(p.Prefix)
	if highest.Is4() {
		return highest.Prev()
	}
	return highest
}

func validPools(pools []Pool) error {
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
	Pool
	blocks []*blockState // in the order in which they were added
	*shared
}

func newPoolState(p Pool, of *shared, now time.Time) *poolState {
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
	return !a.Less(s.first()) && !s.last().Less(a) && !s.kept().Contain(a)
}

// poolOfLocked returns the pool that contains an address; nil if there is none.
func (a *Allocator) poolOfLocked(address netip.Addr) *poolState {
	for _, s := range a.pools {
		if s.Prefix.Contains(address) {
			return s
		}
	}
	return nil
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

// blocksLocked returns the blocks of all pools.
func (a *Allocator) blocksLocked() []*blockState { return blocksOf(a.pools) }

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
func (a *Allocator) SetPools(pools []Pool) map[string]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused := make(map[string]error)
	var after, leaving []*poolState
	for _, s := range a.pools {
		if at := slices.IndexFunc(pools, func(p Pool) bool { return p.Name == s.Name }); at >= 0 && s.fits(pools[at]) {
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

// fits reports whether two pools have the same addresses.
func (p Pool) fits(o Pool) bool {
	return p.Prefix == o.Prefix && p.Blocks == o.Blocks && p.Node() == o.Node()
}

// update changes a pool except its addresses. Pods keep addresses that are reserved now.
func (s *poolState) update(p Pool) {
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

func (a *Allocator) poolNamedLocked(name string) *poolState {
	for _, s := range a.pools {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// admissible rejects a pool that is invalid or overlaps accepted ones.
func admissible(p Pool, lists ...[]*poolState) error {
	all := []Pool{p}
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
