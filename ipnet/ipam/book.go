package ipam

import (
	"net/netip"
	"slices"
	"time"
)

// reuseAfter bounds how many released addresses a pool remembers before it prefers them to ones never used: a pool of
// IPv6 would else grow for ever. At one pod a second it is more than an hour of idleness.
const reuseAfter = 4096

// book keeps the accounts of one pool. Its memory grows with the addresses that were used, not with the pool.
type book struct {
	Pool
	highest netip.Addr // of those for pods

	entries  map[netip.Addr]*entry // what is or was held
	holders  map[string]netip.Addr // who holds one
	released queue                 // entries that cool down or are idle, longest first
	next     netip.Addr            // those for pods below it are in entries or in returned
	returned []netip.Addr          // below next, and never used: their leases were undone; ascending
	releases uint64                // so far: orders those of equal time
	leased   uint64
	used     uint64
}

// entry is what is known of one address.
type entry struct {
	Lease
	prior *Lease // with a pending lease of an address that was used before: what it was then
	order uint64 // of its release among those of equal time
	index int    // in released
}

func newBook(p Pool, now time.Time) *book {
	node := &entry{Lease: Lease{Pool: p.Name, Address: p.Node(), Holder: InternalHolder, State: Internal, Since: now}}
	return &book{
		Pool:    p,
		highest: p.last(),
		entries: map[netip.Addr]*entry{p.Node(): node},
		holders: make(map[string]netip.Addr),
		next:    p.first(),
	}
}

// pick chooses an address that may be granted: one never used, or the one that has been idle longest; never one that
// cools down.
func (b *book) pick(now time.Time) (netip.Addr, bool) {
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

// grantable says why an address of the pool cannot be granted, whoever asks; what from uses can be.
func (b *book) grantable(address netip.Addr, from []string) error {
	if e, known := b.entries[address]; known && e.held() && !(e.State == Used && slices.Contains(from, e.Holder)) {
		return ErrInUse{Address: address, Holder: e.Holder}
	}
	if address.Less(b.first()) || b.highest.Less(address) {
		return ErrOutside{Address: address, Pool: b.Name}
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
	b.holders[holder] = address
	b.leased++
	return e.Lease
}

// unplace takes an entry out of where its lease puts it: with its holder, or in the queue.
func (b *book) unplace(e *entry) {
	if e.State != Used {
		b.released.take(e)
		return
	}
	delete(b.holders, e.Holder)
	b.used--
}

// place is the inverse of unplace.
func (b *book) place(e *entry) {
	if e.State != Used {
		b.released.put(e)
		return
	}
	b.holders[e.Holder] = e.Address
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
	delete(b.holders, holder)
	b.leased--
	if e.prior != nil {
		e.Lease, e.prior = *e.prior, nil
		b.place(e)
		return
	}
	delete(b.entries, e.Address)
	if e.Address.Less(b.next) {
		at, _ := slices.BinarySearchFunc(b.returned, e.Address, netip.Addr.Compare)
		b.returned = slices.Insert(b.returned, at, e.Address)
	}
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
	delete(b.holders, holder)
	b.cool(e, e.cooled(now, freeAt))
}

// cool puts an entry that nobody holds into the queue.
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

func (b *book) stats(now time.Time) Stats {
	s := Stats{Pool: b.Pool, Leased: b.leased, Used: b.used}
	for _, e := range b.released {
		if e.FreeAt.After(now) {
			s.Cooling++
		}
	}
	s.Free = b.capacity()
	if hostBits(b.Prefix) <= 64 {
		s.Free -= s.Leased + s.Used + s.Cooling
	}
	return s
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
