package ipam

import (
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// reuseAfter is the number of released addresses at which a block reuses them before addresses that were never used. It
// bounds the memory for a large IPv6 pool. At one pod per second an address is still idle for more than an hour.
const reuseAfter = 4096

// blockState has the addresses of one block. Its memory grows with the addresses that were used, not with the size of
// the block.
type blockState struct {
	netaddr.Pool
	block           netip.Prefix
	lowest, highest netip.Addr // for pods; if there are none, highest is below lowest
	closed          bool       // grants no address

	entries  map[netip.Addr]*entry // addresses that are or were held
	holders  map[string]netip.Addr // addresses by holder
	released queue                 // cooling and idle entries that are not occupied, idle longest first
	next     netip.Addr            // lower addresses for pods are in entries or in returned, or are occupied
	returned []netip.Addr          // below next, never used because their leases were undone; ascending
	releases uint64                // count, orders releases at the same time
	leased   uint64
	used     uint64
	reserved uint64         // internal and withheld, of those for pods
	unchosen netaddr.Ranges // Pool.Unchosen
	*shared
}

// shared is common to all blocks of an allocator.
type shared struct {
	handles  handles
	occupied occupied
}

// entry is the state of one address.
type entry struct {
	Lease
	prior *Lease // lease before the pending one; nil if the address was never used
	order uint64 // of its release among releases at the same time
	index int    // in released
}

func newBlockState(p netaddr.Pool, block netip.Prefix, of *shared) *blockState {
	b := &blockState{
		Pool: p, block: block, lowest: block.Addr(), highest: netaddr.Last(block), unchosen: p.Unchosen(),
		entries: make(map[netip.Addr]*entry), holders: make(map[string]netip.Addr), shared: of,
	}
	if b.lowest.Less(p.First()) {
		b.lowest = p.First()
	}
	if p.Last().Less(b.highest) {
		b.highest = p.Last()
	}
	b.next = b.lowest
	return b
}

// reserve makes an address internal or withheld.
func (b *blockState) reserve(l Lease) {
	b.entries[l.Address] = &entry{Lease: l}
	b.returned = slices.DeleteFunc(b.returned, func(r netip.Addr) bool { return r == l.Address })
	if b.isForPods(l.Address) {
		b.reserved++
	}
}

// setPool takes over the properties of the pool. Addresses that it reserved or excluded before are free again.
func (b *blockState) setPool(p netaddr.Pool) {
	for _, e := range b.entries {
		if !e.held() {
			b.dequeue(e)
		}
	}
	b.Pool = p
	b.unchosen = p.Unchosen()
	b.next = b.lowest
	b.returned = nil // they are above next now
	b.reserved = 0
	for address, e := range b.entries {
		switch {
		case !e.held():
			b.enqueue(e)
		case !e.isPods() && b.isForPods(address):
			b.reserved++
		}
	}
}

// isForPods reports whether pods can have an address of the block without a request for it.
func (b *blockState) isForPods(a netip.Addr) bool {
	return !a.Less(b.lowest) && !b.highest.Less(a) && !b.unchosen.Contain(a)
}

// isGrantable reports whether a pod that requests an address of the block can have it.
func (b *blockState) isGrantable(a netip.Addr) bool {
	return !a.Less(b.lowest) && !b.highest.Less(a) && !b.Kept().Contain(a)
}

// pick returns an address that was never used, or the one that is idle longest; never a cooling or an occupied one.
func (b *blockState) pick(now time.Time) (netip.Addr, bool) {
	if b.closed {
		return netip.Addr{}, false
	}
	idle := len(b.released) > 0 && !b.released[0].FreeAt.After(now)
	if idle && len(b.released) >= reuseAfter {
		return b.released[0].Address, true
	}
	if address, ok := b.fresh(); ok {
		return address, true
	}
	if idle {
		return b.released[0].Address, true
	}
	return netip.Addr{}, false
}

// fresh returns the lowest address that was never used.
func (b *blockState) fresh() (netip.Addr, bool) {
	if len(b.returned) > 0 {
		return b.returned[0], true
	}
	for b.next.Compare(b.highest) <= 0 {
		if r, skip := b.unchosen.Containing(b.next); skip {
			b.next = r.Last.Next()
			if !b.next.IsValid() { // the highest address of all
				b.next = r.Last
				return netip.Addr{}, false
			}
			continue
		}
		if _, known := b.entries[b.next]; !known && !b.isOccupied(b.next) {
			return b.next, true
		}
		b.next = b.next.Next()
	}
	return netip.Addr{}, false
}

// grantable returns an error if an address cannot be granted. An address used by a holder in from can.
func (b *blockState) grantable(address netip.Addr, from []string) error {
	e, known := b.entries[address]
	handedOver := known && e.State == Used && slices.Contains(from, e.Holder)
	switch {
	case handedOver:
		return nil
	case known && e.held():
		return ErrInUse{Address: address, Holder: e.Holder}
	case !b.isGrantable(address):
		return ErrOutside{Address: address, Pool: b.Name}
	case b.closed:
		return ErrOutside{Address: address, Pool: b.Name, Elsewhere: true}
	}
	return nil
}

// restsFor returns an error while an address cools down and its last holder was of another namespace. A holder whose
// namespace is not known was on another node, whose agent has waited, or is of an earlier version.
func (b *blockState) restsFor(address netip.Addr, namespace string, now time.Time) error {
	e, known := b.entries[address]
	if !known || e.held() || !e.FreeAt.After(now) || e.Namespace == "" || e.Namespace == namespace {
		return nil
	}
	return ErrCooling{Address: address, FreeAt: e.FreeAt}
}

// grant makes a lease of a grantable address pending.
func (b *blockState) grant(l Lease) Lease {
	address := l.Address
	e := b.entries[address]
	if e == nil {
		e = &entry{}
		b.entries[address] = e
		b.returned = slices.DeleteFunc(b.returned, func(r netip.Addr) bool { return r == address })
	} else {
		b.unplace(e)
		prior := e.Lease
		e.prior = &prior
	}
	e.Lease = Lease{
		Pool:      b.Name,
		Address:   address,
		Holder:    l.Holder,
		Namespace: l.Namespace,
		Pod:       l.Pod,
		State:     Leased,
		Since:     l.Since,
	}
	b.bind(l.Holder, address)
	b.leased++
	return e.Lease
}

// unplace removes an entry from its holder, or from the queue of released entries.
func (b *blockState) unplace(e *entry) {
	if e.State != Used {
		b.dequeue(e)
		return
	}
	b.unbind(e.Holder)
	b.used--
}

// place is the inverse of unplace.
func (b *blockState) place(e *entry) {
	if e.State != Used {
		b.enqueue(e)
		return
	}
	b.bind(e.Holder, e.Address)
	b.used++
}

func (b *blockState) commit(holder string) {
	e := b.heldBy(holder)
	if e == nil || e.State != Leased {
		return
	}
	e.State = Used
	e.prior = nil
	b.leased--
	b.used++
}

// undo restores the state before the grant, including the place in the queue.
func (b *blockState) undo(holder string) {
	e := b.heldBy(holder)
	if e == nil || e.State != Leased {
		return
	}
	b.unbind(holder)
	b.leased--
	if e.prior != nil {
		e.Lease = *e.prior
		e.prior = nil
		b.place(e)
		return
	}
	delete(b.entries, e.Address)
	b.giveBack(e.Address)
}

// giveBack records an address without an entry as never used.
func (b *blockState) giveBack(address netip.Addr) {
	if address.Less(b.next) && !b.isSkipped(address) {
		at, _ := slices.BinarySearchFunc(b.returned, address, netip.Addr.Compare)
		b.returned = slices.Insert(b.returned, at, address)
	}
}

// forget removes the entry of a free address.
func (b *blockState) forget(address netip.Addr) {
	if e := b.entries[address]; e != nil {
		b.dequeue(e)
		delete(b.entries, address)
		b.giveBack(address)
	}
}

// isEmpty reports whether no address is held or cools down.
func (b *blockState) isEmpty(now time.Time) bool {
	for _, e := range b.entries {
		if e.State != Withheld && (e.held() || e.FreeAt.After(now)) {
			return false
		}
	}
	return true
}

// internal returns the node's own address; the zero value if it is not in this block.
func (b *blockState) internal() netip.Addr {
	for address, e := range b.entries {
		if e.State == Internal {
			return address
		}
	}
	return netip.Addr{}
}

func (b *blockState) release(holder string, now, freeAt time.Time) {
	e := b.heldBy(holder)
	if e == nil {
		return
	}
	if e.State == Leased {
		b.leased--
	} else {
		b.used--
	}
	b.unbind(holder)
	b.cool(e, e.cooled(now, freeAt))
}

// cool adds an entry to the queue of released entries.
func (b *blockState) cool(e *entry, l Lease) {
	b.releases++
	e.Lease = l
	e.prior = nil
	e.order = b.releases
	b.enqueue(e)
}

// unless returns an error if the holder has another address than the wanted one.
func (e *entry) unless(wanted netip.Addr) error {
	if e.Address == wanted {
		return nil
	}
	return ErrInUse{Address: e.Address, Holder: e.Holder}
}

func (b *blockState) heldBy(holder string) *entry {
	if address, ok := b.holders[holder]; ok {
		return b.entries[address]
	}
	return nil
}

// leases lists the leases of addresses that are not free, by address. An address that no pod has is a machine's if one
// has it.
func (b *blockState) leases(now time.Time) []Lease {
	leases := b.occupiedLeases()
	for _, e := range b.entries {
		if e.held() || e.FreeAt.After(now) && !b.isOccupied(e.Address) {
			leases = append(leases, e.Lease)
		}
	}
	slices.SortFunc(leases, func(x, y Lease) int { return x.Address.Compare(y.Address) })
	return leases
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

// handles lists the blocks in which each holder has an address, so that no call searches all blocks.
type handles map[string][]*blockState

// bind records that a holder has an address.
func (b *blockState) bind(holder string, address netip.Addr) {
	b.holders[holder] = address
	if !slices.Contains(b.handles[holder], b) {
		b.handles[holder] = append(b.handles[holder], b)
	}
}

// unbind is the inverse of bind.
func (b *blockState) unbind(holder string) {
	delete(b.holders, holder)
	left := slices.DeleteFunc(b.handles[holder], func(o *blockState) bool { return o == b })
	if b.handles[holder] = left; len(left) == 0 {
		delete(b.handles, holder)
	}
}
