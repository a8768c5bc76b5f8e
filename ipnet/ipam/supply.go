package ipam

import (
	"container/heap"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// span is the part of a block that pods get their addresses from.
type span struct {
	netaddr.Pool
	block           netip.Prefix
	lowest, highest netip.Addr     // for pods; without such addresses highest is below lowest
	unchosen        netaddr.Ranges // Pool.Unchosen
}

func newSpan(p netaddr.Pool, block netip.Prefix) span {
	s := span{Pool: p, block: block, lowest: block.Addr(), highest: netaddr.Last(block), unchosen: p.Unchosen()}
	if s.lowest.Less(p.First()) {
		s.lowest = p.First()
	}
	if p.Last().Less(s.highest) {
		s.highest = p.Last()
	}
	return s
}

// isForPods reports whether pods can have an address of the block without a request for it.
func (s *span) isForPods(a netip.Addr) bool {
	return !a.Less(s.lowest) && !s.highest.Less(a) && !s.unchosen.Contain(a)
}

// isGrantable reports whether a pod that requests an address of the block can have it.
func (s *span) isGrantable(a netip.Addr) bool {
	return !a.Less(s.lowest) && !s.highest.Less(a) && !s.Kept().Contain(a)
}

// size returns the number of addresses for pods; counted is false if a uint64 cannot hold it.
func (s *span) size() (n uint64, counted bool) {
	if s.highest.Less(s.lowest) {
		return 0, true
	}
	n = lower64(s.highest) - lower64(s.lowest) + 1
	if s.block.Addr().BitLen()-s.block.Bits() > 64 || n == 0 {
		return math.MaxUint64, false
	}
	return n, true
}

// lower64 returns the lower 64 bits of an address.
func lower64(a netip.Addr) uint64 {
	bytes := a.As16()
	return binary.BigEndian.Uint64(bytes[8:])
}

// reuseAfter is the number of released addresses at which a block reuses them before addresses that were never used. It
// bounds the memory for a large IPv6 pool. At one pod per second an address is still idle for more than an hour.
const reuseAfter = 4096

// supply chooses the addresses of a block for pods that request none:
//
//	next, returned --> fresh --+
//	                           +--> pick
//	released --------> idle ---+
//
// An occupied address is in none of the three.
type supply struct {
	span
	*shared
	closed   bool                  // grants no address
	entries  map[netip.Addr]*entry // addresses that are or were held
	released queue                 // cooling and idle entries that are not occupied, idle longest first
	next     netip.Addr            // lower addresses for pods are in entries or in returned, or are occupied
	returned []netip.Addr          // below next, never used because their leases were undone; ascending
}

func newSupply(s span, of *shared) supply {
	return supply{span: s, shared: of, entries: make(map[netip.Addr]*entry), next: s.lowest}
}

// setPool takes over the properties of the pool.
func (s *supply) setPool(p netaddr.Pool) {
	for _, e := range s.entries {
		if !e.held() {
			s.dequeue(e)
		}
	}
	s.Pool = p
	s.unchosen = p.Unchosen()
	s.next = s.lowest
	s.returned = nil // they are above next now
	for _, e := range s.entries {
		if !e.held() {
			s.enqueue(e)
		}
	}
}

// pick returns an address that was never used, or the one that is idle longest; never a cooling or an occupied one.
func (s *supply) pick(now time.Time) (netip.Addr, bool) {
	if s.closed {
		return netip.Addr{}, false
	}
	idle := len(s.released) > 0 && !s.released[0].FreeAt.After(now)
	if idle && len(s.released) >= reuseAfter {
		return s.released[0].Address, true
	}
	if address, ok := s.fresh(); ok {
		return address, true
	}
	if idle {
		return s.released[0].Address, true
	}
	return netip.Addr{}, false
}

// fresh returns the lowest address that was never used.
func (s *supply) fresh() (netip.Addr, bool) {
	if len(s.returned) > 0 {
		return s.returned[0], true
	}
	for s.next.Compare(s.highest) <= 0 {
		if r, skip := s.unchosen.Containing(s.next); skip {
			s.next = r.Last.Next()
			if !s.next.IsValid() { // the highest address of all
				s.next = r.Last
				return netip.Addr{}, false
			}
			continue
		}
		if _, known := s.entries[s.next]; !known && !s.isOccupied(s.next) {
			return s.next, true
		}
		s.next = s.next.Next()
	}
	return netip.Addr{}, false
}

// withdraw removes an address that is not fresh any more: it gets an entry, or is occupied.
func (s *supply) withdraw(address netip.Addr) {
	s.returned = slices.DeleteFunc(s.returned, func(r netip.Addr) bool { return r == address })
}

// giveBack records an address without an entry as never used.
func (s *supply) giveBack(address netip.Addr) {
	if address.Less(s.next) && !s.isSkipped(address) {
		at, _ := slices.BinarySearchFunc(s.returned, address, netip.Addr.Compare)
		s.returned = slices.Insert(s.returned, at, address)
	}
}

// forget removes the entry of a free address.
func (s *supply) forget(address netip.Addr) {
	if e := s.entries[address]; e != nil {
		s.dequeue(e)
		delete(s.entries, address)
		s.giveBack(address)
	}
}

// occupy excludes an address from the choice of pick, before it is occupied.
func (s *supply) occupy(address netip.Addr) {
	s.withdraw(address)
	if e := s.entries[address]; e != nil && !e.held() {
		s.dequeue(e)
	}
}

// vacate is the inverse of occupy, when the address is not occupied any more.
func (s *supply) vacate(address netip.Addr) {
	switch e := s.entries[address]; {
	case e == nil && s.isForPods(address):
		s.giveBack(address)
	case e != nil && !e.held():
		s.enqueue(e)
	}
}

func (s *supply) isOccupied(address netip.Addr) bool { return s.occupied.by[address] != "" }

// isSkipped reports whether no pod gets an address without a request for it.
func (s *supply) isSkipped(address netip.Addr) bool {
	return s.isOccupied(address) || s.unchosen.Contain(address)
}

// enqueue adds an entry that no holder has to the queue of released entries.
func (s *supply) enqueue(e *entry) {
	if !s.isSkipped(e.Address) {
		s.released.put(e)
	}
}

// dequeue is the inverse of enqueue.
func (s *supply) dequeue(e *entry) {
	if !s.isSkipped(e.Address) {
		s.released.take(e)
	}
}

// skipped lists the occupied addresses for pods that no holder has.
func (s *supply) skipped() []netip.Addr {
	var skipped []netip.Addr
	for _, address := range s.occupied.within(s.lowest, s.highest) {
		if e := s.entries[address]; s.isForPods(address) && (e == nil || !e.held()) {
			skipped = append(skipped, address)
		}
	}
	return skipped
}

// occupiedLeases describes the skipped addresses as leases of the machines that have them.
func (s *supply) occupiedLeases() []Lease {
	var leases []Lease
	for _, address := range s.skipped() {
		leases = append(leases, Lease{Pool: s.Name, Address: address, Holder: s.occupied.by[address], State: Occupied})
	}
	return leases
}

// skippedUnchosen counts the addresses that no pod gets without a request and no pod has.
func (s *supply) skippedUnchosen() uint64 {
	if s.highest.Less(s.lowest) {
		return 0
	}
	count := s.unchosen.CountIn(s.lowest, s.highest)
	for address, e := range s.entries {
		if e.isPods() && e.held() && s.unchosen.Contain(address) {
			count--
		}
	}
	return count
}

// queue is a heap of released entries, the first one to be free at the head. An undone lease gets its old place back.
type queue []*entry

// Len returns the number of entries. Len, Less, Swap, Push and Pop implement heap.Interface.
func (q queue) Len() int { return len(q) }

// Less orders by FreeAt, then by the order of release.
func (q queue) Less(i, j int) bool {
	if !q[i].FreeAt.Equal(q[j].FreeAt) {
		return q[i].FreeAt.Before(q[j].FreeAt)
	}
	return q[i].order < q[j].order
}

// Swap swaps two entries and their indexes.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index = i
	q[j].index = j
}

// Push is for container/heap; use put.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop is for container/heap; use take.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}

func (q *queue) put(e *entry) { heap.Push(q, e) }

func (q *queue) take(e *entry) { heap.Remove(q, e.index) }
