package blocks

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Marks are the water marks of a node for each pool: how many addresses it has ready.
type Marks struct {
	Low       int           // a block is claimed below this number of free addresses
	High      int           // an empty block is released if this many free addresses remain
	Grace     time.Duration // a released block must be empty for this time
	MaxBlocks int           // of one pool

	WarmBlocks int // if not 0 both marks are the addresses of this number of blocks, and Low and High are ignored
}

// maxSizeBits bounds the size of a block in marks: blocks of IPv6 may be larger.
const maxSizeBits = 24

// DefaultMarks serve a usual burst of pods on a node without a request to the API server.
func DefaultMarks() Marks { return Marks{Low: 16, High: 48, Grace: 5 * time.Minute, MaxBlocks: 64} }

// Validate refuses marks with which blocks would be claimed and released forever.
func (m Marks) Validate() error {
	switch {
	case m.Low < 0 || m.High < m.Low:
		return fmt.Errorf("water marks: low %d, high %d: expected 0 <= low <= high", m.Low, m.High)
	case m.MaxBlocks < 1:
		return fmt.Errorf("water marks: at most %d blocks: expected 1 at least", m.MaxBlocks)
	case m.WarmBlocks < 0 || m.WarmBlocks > m.MaxBlocks:
		return fmt.Errorf("water marks: %d warm blocks of at most %d: expected 0 to %d", m.WarmBlocks, m.MaxBlocks,
			m.MaxBlocks)
	case m.Grace < 0:
		return fmt.Errorf("water marks: grace %v: expected no less than 0", m.Grace)
	}
	return nil
}

// Usage counts the addresses of a block for pods. Cooling addresses are neither free nor held; a block is empty without
// held and cooling ones.
type Usage struct {
	Held, Cooling, Free int
}

func (u Usage) empty() bool { return u.Held == 0 && u.Cooling == 0 }

// level is the state of a pool on a node.
type level struct {
	blocks   []*held
	borrowed int  // free addresses that other nodes lend
	wanted   bool // a pod needs an address, and none is free
}

func (l level) free() int {
	sum := l.borrowed
	for _, b := range l.blocks {
		sum += b.usage.Free
	}
	return sum
}

// of returns the marks for a pool.
func (m Marks) of(p PoolCIDR) (low, high int) {
	if m.WarmBlocks == 0 {
		return m.Low, m.High
	}
	bits := min(p.Prefix.Addr().BitLen()-p.Bits, maxSizeBits)
	return m.WarmBlocks << bits, m.WarmBlocks << bits
}

// short reports whether to claim a block. It excludes surplus: a claim needs fewer free addresses than the low mark, a
// release leaves at least the high mark.
func (m Marks) short(p PoolCIDR, l level) bool {
	switch {
	case p.Closed || len(l.blocks) >= m.MaxBlocks:
		return false
	case l.wanted && l.free() == 0:
		return true
	case p.OnDemand && len(l.blocks) == 0:
		return false
	}
	low, _ := m.of(p)
	return l.free() < low
}

// surplus returns the block to release, the one that has been empty longest, or nil.
func (m Marks) surplus(p PoolCIDR, l level, now time.Time) *held {
	_, high := m.of(p)
	idle := slices.DeleteFunc(slices.Clone(l.blocks), func(b *held) bool {
		return !b.usage.empty() || now.Sub(b.emptySince) < m.Grace || b.lent()
	})
	slices.SortFunc(idle, func(x, y *held) int {
		return cmp.Or(x.emptySince.Compare(y.emptySince), cmp.Compare(x.name, y.name))
	})
	for _, b := range idle {
		last := p.OnDemand && len(l.blocks) == 1
		if p.Closed || last || l.free()-b.usage.Free >= high {
			return b
		}
	}
	return nil
}
