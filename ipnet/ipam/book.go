package ipam

import (
	"net/netip"
	"slices"
	"time"
)

// reuseAfter bounds how many released addresses a pool remembers before it prefers them to ones never used: a pool of
// IPv6 would else grow for ever. At one pod a second it is more than an hour of idleness.
const reuseAfter = 4096

// book keeps the accounts of one block of a pool, or of a whole one. Its memory grows with the addresses that were used,
// not with the block.
type book struct {
	Pool
	block           netip.Prefix
	lowest, highest netip.Addr // of those for pods; where it has none, the highest is below the lowest
	closed          bool       // no address is granted any more

	entries  map[netip.Addr]*entry // what is or was held
	holders  map[string]netip.Addr // who holds one
	handles  handles               // of all books
	released queue                 // entries that cool down or are idle, longest first
	next     netip.Addr            // those for pods below it are in entries or in returned
	returned []netip.Addr          // below next, and never used: their leases were undone; ascending
	releases uint64                // so far: orders those of equal time
	leased   uint64
	used     uint64
	reserved uint64 // between lowest and highest: the node's own, and those that other nodes may use
}

// entry is what is known of one address.
type entry struct {
	Lease
	prior *Lease // with a pending lease of an address that was used before: what it was then
	order uint64 // of its release among those of equal time
	index int    // in released
}

func newBook(p Pool, block netip.Prefix, h handles) *book {
	b := &book{
		Pool: p, block: block, lowest: block.Addr(), highest: lastOf(block),
		entries: make(map[netip.Addr]*entry), holders: make(map[string]netip.Addr), handles: h,
	}
	if b.lowest.Less(p.first()) {
		b.lowest = p.first()
	}
	if p.last().Less(b.highest) {
		b.highest = p.last()
	}
	b.next = b.lowest
	return b
}

// reserve takes an address out of those for pods.
func (b *book) reserve(l Lease) {
	b.entries[l.Address] = &entry{Lease: l}
	b.returned = slices.DeleteFunc(b.returned, func(r netip.Addr) bool { return r == l.Address })
	if b.isForPods(l.Address) {
		b.reserved++
	}
}

func (b *book) isForPods(a netip.Addr) bool { return !a.Less(b.lowest) && !b.highest.Less(a) }

// pick chooses an address that may be granted: one never used, or the one that has been idle longest; never one that
// cools down.
func (b *book) pick(now time.Time) (netip.Addr, bool) {
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

// fresh is the lowest address that was never used, if there is one.
func (b *book) fresh() (netip.Addr, bool) {
	if len(b.returned) > 0 {
		return b.returned[0], true
	}
	for b.next.Compare(b.highest) <= 0 {
		if _, known := b.entries[b.next]; !known {
			return b.next, true
		}
		b.next = b.next.Next()
	}
	return netip.Addr{}, false
}

// grantable says why an address of the pool cannot be granted to any holder; what from uses can be.
func (b *book) grantable(address netip.Addr, from []string) error {
	e, known := b.entries[address]
	handedOver := known && e.State == Used && slices.Contains(from, e.Holder)
	switch {
	case handedOver:
		return nil
	case known && e.held():
		return ErrInUse{Address: address, Holder: e.Holder}
	case !b.isForPods(address):
		return ErrOutside{Address: address, Pool: b.Name}
	case b.closed:
		return ErrOutside{Address: address, Pool: b.Name, Elsewhere: true}
	}
	return nil
}

// grant makes a grantable address a pending lease.
func (b *book) grant(address netip.Addr, holder string, now time.Time) Lease {
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
	e.Lease = Lease{Pool: b.Name, Address: address, Holder: holder, State: Leased, Since: now}
	b.bind(holder, address)
	b.leased++
	return e.Lease
}

// unplace takes an entry out of where its lease puts it: with its holder, or in the queue.
func (b *book) unplace(e *entry) {
	if e.State != Used {
		b.released.take(e)
		return
	}
	b.unbind(e.Holder)
	b.used--
}

// place is the inverse of unplace.
func (b *book) place(e *entry) {
	if e.State != Used {
		b.released.put(e)
		return
	}
	b.bind(e.Holder, e.Address)
	b.used++
}

func (b *book) commit(holder string) {
	e := b.heldBy(holder)
	if e == nil || e.State != Leased {
		return
	}
	e.State, e.prior = Used, nil
	b.leased--
	b.used++
}

// undo makes everything as it was before the grant: an address used before is back in its place in the queue.
func (b *book) undo(holder string) {
	e := b.heldBy(holder)
	if e == nil || e.State != Leased {
		return
	}
	b.unbind(holder)
	b.leased--
	if e.prior != nil {
		e.Lease, e.prior = *e.prior, nil
		b.place(e)
		return
	}
	delete(b.entries, e.Address)
	b.giveBack(e.Address)
}

// giveBack makes an address, that nothing is known of, one that was never used.
func (b *book) giveBack(address netip.Addr) {
	if address.Less(b.next) {
		at, _ := slices.BinarySearchFunc(b.returned, address, netip.Addr.Compare)
		b.returned = slices.Insert(b.returned, at, address)
	}
}

// forget removes the entry of a free address.
func (b *book) forget(address netip.Addr) {
	if e := b.entries[address]; e != nil {
		b.released.take(e)
		delete(b.entries, address)
		b.giveBack(address)
	}
}

// isEmpty reports whether no pod has an address, or had one lately.
func (b *book) isEmpty(now time.Time) bool {
	for _, e := range b.entries {
		if e.State != Withheld && (e.held() || e.FreeAt.After(now)) {
			return false
		}
	}
	return true
}

// internal is the node's own address; not valid if it has none here.
func (b *book) internal() netip.Addr {
	for address, e := range b.entries {
		if e.State == Internal {
			return address
		}
	}
	return netip.Addr{}
}

func (b *book) release(holder string, now, freeAt time.Time) {
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

// cool puts a released entry into the cooling queue.
func (b *book) cool(e *entry, l Lease) {
	b.releases++
	e.Lease, e.prior, e.order = l, nil, b.releases
	b.released.put(e)
}

// unless is the error of a holder that has another address than the wanted one.
func (e *entry) unless(wanted netip.Addr) error {
	if e.Address == wanted {
		return nil
	}
	return ErrInUse{Address: e.Address, Holder: e.Holder}
}

func (b *book) heldBy(holder string) *entry {
	if address, ok := b.holders[holder]; ok {
		return b.entries[address]
	}
	return nil
}

// leases lists what is not free, by address.
func (b *book) leases(now time.Time) []Lease {
	var leases []Lease
	for _, e := range b.entries {
		if e.held() || e.FreeAt.After(now) {
			leases = append(leases, e.Lease)
		}
	}
	slices.SortFunc(leases, func(x, y Lease) int { return x.Address.Compare(y.Address) })
	return leases
}
