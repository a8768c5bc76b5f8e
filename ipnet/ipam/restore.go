package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Restore takes over leases that an earlier run kept, before the first Lease. Earlier ones win over later ones of the
// same address. Used and leased ones are used afterwards; cooling ones go on cooling, but never longer than one
// cool-down from now, whatever the clock did meanwhile. The pool of an address is where its prefix is today. What
// cannot be restored is left out and named in the error; the others are restored.
func (a *Allocator) Restore(leases []Lease) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	var cooling []Lease
	for _, l := range leases {
		switch l.State {
		case Used, Leased:
			errs = append(errs, a.restoreUsedLocked(l))
		case Cooling:
			cooling = append(cooling, l)
		case Internal, Withheld: // said by others
		default:
			errs = append(errs, fmt.Errorf("restore %s: unknown state %q", l.Address, l.State))
		}
	}
	slices.SortStableFunc(cooling, func(x, y Lease) int { return x.FreeAt.Compare(y.FreeAt) })
	for _, l := range cooling {
		errs = append(errs, a.restoreCoolingLocked(l))
	}
	return errors.Join(errs...)
}

func (a *Allocator) restoreUsedLocked(l Lease) error {
	if s := a.stockOfLocked(l.Address); s != nil && s.bookOf(l.Address) == nil {
		return s.stray(l)
	}
	b, err := a.restorableLocked(l.Address)
	if err != nil {
		return fmt.Errorf("restore lease of %s: %w", l.Holder, err)
	}
	if held, ok := b.holders[l.Holder]; ok || l.Holder == "" {
		return fmt.Errorf("restore lease of %q on %s: it holds %s", l.Holder, l.Address, held)
	}
	b.grant(l.Address, l.Holder, l.Since)
	b.commit(l.Holder)
	return nil
}

func (a *Allocator) restoreCoolingLocked(l Lease) error {
	b, err := a.restorableLocked(l.Address)
	if inUse := (ErrInUse{}); errors.As(err, &inUse) {
		return nil // granted again since: what is held says more than what was
	}
	if err != nil {
		return fmt.Errorf("restore cooling lease of %s: %w", l.Holder, err)
	}
	if _, known := b.entries[l.Address]; known {
		return nil
	}
	l.Pool = b.Name
	if latest := a.now().Add(a.coolDown); l.FreeAt.After(latest) {
		l.FreeAt = latest
	}
	e := &entry{}
	b.entries[l.Address] = e
	b.cool(e, l)
	return nil
}

// stray keeps account of an address that is used, and in no block that is known yet.
func (s *stock) stray(l Lease) error {
	if l.Holder == "" {
		return fmt.Errorf("restore lease of %s: it has no holder", l.Address)
	}
	if held, ok := heldIn(s.books, l.Holder); ok {
		return fmt.Errorf("restore lease of %q on %s: it holds %s", l.Holder, l.Address, held.Address)
	}
	b := newBook(s.Pool, netip.PrefixFrom(l.Address, l.Address.BitLen()), s.handles)
	b.closed = true
	b.grant(l.Address, l.Holder, l.Since)
	b.commit(l.Holder)
	s.books = append(s.books, b)
	return nil
}

func (a *Allocator) restorableLocked(address netip.Addr) (*book, error) {
	s := a.stockOfLocked(address)
	if s == nil {
		return nil, ErrOutside{Address: address}
	}
	b := s.bookOf(address)
	if b == nil {
		return nil, ErrOutside{Address: address, Pool: s.Name, Elsewhere: true}
	}
	return b, b.restorable(address)
}

// restorable returns why no holder can have had an address of the block. A closed block is closed to new holders only.
func (b *book) restorable(address netip.Addr) error {
	err := b.grantable(address, nil)
	if elsewhere := (ErrOutside{}); errors.As(err, &elsewhere) && elsewhere.Elsewhere {
		return nil
	}
	return err
}
