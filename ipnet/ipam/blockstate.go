package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// blockState has the addresses of one block. Its memory grows with the addresses that were used, not with the size of
// the block.
type blockState struct {
	supply
	holders  map[string]netip.Addr // addresses by holder
	releases uint64                // count, orders releases at the same time
	leased   uint64
	used     uint64
	reserved uint64 // internal and withheld, of those for pods
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
	return &blockState{supply: newSupply(newSpan(p, block), of), holders: make(map[string]netip.Addr)}
}

// reserve makes an address internal or withheld.
func (b *blockState) reserve(l Lease) {
	b.entries[l.Address] = &entry{Lease: l}
	b.withdraw(l.Address)
	if b.isForPods(l.Address) {
		b.reserved++
	}
}

// setPool takes over the properties of the pool. Addresses that it reserved or excluded before are free again.
func (b *blockState) setPool(p netaddr.Pool) {
	b.supply.setPool(p)
	b.reserved = 0
	for address, e := range b.entries {
		if e.held() && !e.isPods() && b.isForPods(address) {
			b.reserved++
		}
	}
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
		b.withdraw(address)
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

// restorable returns an error if no holder can have had the address. A closed block is closed to new holders only.
func (b *blockState) restorable(address netip.Addr) error {
	err := b.grantable(address, nil)
	if elsewhere := (ErrOutside{}); errors.As(err, &elsewhere) && elsewhere.Elsewhere {
		return nil
	}
	if b.isReservedSince(address, err) {
		return nil
	}
	return err
}

// isReservedSince reports whether the error of an address says only that its pool reserves it, maybe since a pod got
// it.
func (b *blockState) isReservedSince(address netip.Addr, err error) bool {
	outside := ErrOutside{}
	return errors.As(err, &outside) && !outside.Elsewhere && b.Reserved.Contain(address) && address != b.Node()
}
