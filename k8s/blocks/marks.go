package blocks

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Marks are the water marks of a node: how many addresses of a pool it has ready. They hold for each pool.
type Marks struct {
	Low       int           // with fewer free addresses a block is claimed
	High      int           // with this many free ones beside it an empty block is released
	Grace     time.Duration // for how long a block is empty before
	MaxBlocks int           // of one pool

	WarmBlocks int // if not 0 both marks are as many addresses as so many blocks have, and Low and High do not count
}

// maxSizeBits bounds the size of a block that marks count with, which may be of IPv6.
const maxSizeBits = 24

// DefaultMarks are those of a cluster that says nothing: a burst of pods as large as a node usually starts at once is
// served without asking the API server.
func DefaultMarks() Marks {
	return Marks{Low: 16, High: 48, Grace: 5 * time.Minute, MaxBlocks: 64}
}

// Validate refuses marks with which blocks would come and go without end.
func (m Marks) Validate() error {
	switch {
	case m.Low < 0 || m.High < m.Low:
		return fmt.Errorf("water marks: low %d, high %d: expected 0 <= low <= high", m.Low, m.High)
	case m.MaxBlocks < 1:
		return fmt.Errorf("water marks: at most %d blocks: expected 1 at least", m.MaxBlocks)
	case m.WarmBlocks < 0 || m.WarmBlocks > m.MaxBlocks:
		return fmt.Errorf("water marks: %d warm blocks of at most %d: expected 0 to %d", m.WarmBlocks, m.MaxBlocks, m.MaxBlocks)
	case m.Grace < 0:
		return fmt.Errorf("water marks: grace %v: expected no less than 0", m.Grace)
	}
	return nil
}

// Usage counts the addresses of a block for pods. Cooling ones are neither free nor held: a block is empty when none
// is held and none cools down.
type Usage struct {
	Held, Cooling, Free int
}

func (u Usage) empty() bool { return u.Held == 0 && u.Cooling == 0 }

// level is how a pool stands on a node.
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

// of are the marks for a pool.
func (m Marks) of(p Pool) (low, high int) {
	if m.WarmBlocks == 0 {
		return m.Low, m.High
	}
	bits := min(p.Prefix.Addr().BitLen()-p.Bits, maxSizeBits)
	return m.WarmBlocks << bits, m.WarmBlocks << bits
}

// short reports whether a block is to be claimed. Never together with surplus: a claim needs less than the low
// mark of free addresses, a release leaves the high mark at least.
func (m Marks) short(p Pool, l level) bool {
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

// surplus is the block that is to be released, nil if none is: the one that has been empty longest.
func (m Marks) surplus(p Pool, l level, now time.Time) *held {
	_, high := m.of(p)
	var idle []*held
	for _, b := range l.blocks {
		if b.usage.empty() && now.Sub(b.emptySince) >= m.Grace && !b.lent() {
			idle = append(idle, b)
		}
	}
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
