// Package ipam allocates addresses of a node's pools to holders. A released address is reused only after its cool-down.
//
// States of an address; Restore sets the recorded state:
//
//	         Lease            Commit           Release
//	free  ----------> leased --------> used -----------> cooling
//	  ^                 |                                    |
//	  |<---- Undo ------+                                    |
//	  +<------------------- end of the cool-down -------------+
//
// The node's own address has the state Internal. An address that a machine has (Occupy) is not granted, in whatever
// state it is.
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

// DefaultCoolDown is the time between the release of an address and its reuse: caches of other hosts keep the old
// holder that long.
const DefaultCoolDown = 30 * time.Second

// Config configures an [Allocator].
type Config struct {
	Pools    []netaddr.Pool   // in the order in which they are tried
	CoolDown time.Duration    // default [DefaultCoolDown]; negative: none
	Now      func() time.Time // default time.Now
}

// Allocator allocates addresses. It is safe for concurrent use.
type Allocator struct {
	*ledger
	nodeBlocks
	occupancy
}

// New returns an allocator whose addresses are free, except the node's own address of each pool. A pool that nodes
// share has no addresses before AddBlock.
func New(c Config) (*Allocator, error) {
	if err := validPools(c.Pools); err != nil {
		return nil, err
	}
	l := &ledger{coolDown: c.CoolDown, now: c.Now, shared: &shared{handles: make(handles)}}
	a := &Allocator{ledger: l, nodeBlocks: nodeBlocks{l}, occupancy: occupancy{l}}
	if a.coolDown == 0 {
		a.coolDown = DefaultCoolDown
	}
	a.coolDown = max(a.coolDown, 0)
	if a.now == nil {
		a.now = time.Now
	}
	for _, p := range c.Pools {
		a.pools = append(a.pools, newPoolState(p, a.shared, a.now()))
	}
	return a, nil
}

// Request requests one address of each family that has pools.
type Request struct {
	Holder    string
	Namespace string       // of the pod; "" if there is none
	Pod       string       // its name in the namespace
	Addresses []netip.Addr // static addresses, at most one per family; a family without one gets any address
	Pools     []string     // for any address, best first; nil: all enabled pools without namespaces
	Claim     string       // that holds Addresses, as in HoldFor; "": none
	From      []string     // holders whose static address may be taken over; they lose it at the Commit
}

// Lease grants all requested addresses, IPv4 first, or none. A holder gets the addresses that it already has. A lease
// is pending until Commit or Undo of its holder.
//
// The error is an [ErrExhausted], [ErrInUse], [ErrOccupied], [ErrCooling] or [ErrOutside], or the request is invalid. A
// cooling address is granted only as a static address, and only to a pod of the namespace of its last holder: others
// still send to that one.
func (a *Allocator) Lease(r Request) ([]Lease, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Holder == "" || r.Holder == InternalHolder || r.Holder == OtherHolder {
		return nil, fmt.Errorf("holder %q cannot hold addresses of pods", r.Holder)
	}
	wanted, err := a.wantedLocked(r.Addresses)
	if err != nil {
		return nil, err
	}
	var granted []Lease
	var undo []func()
	for _, is4 := range []bool{true, false} {
		pools := a.familyLocked(is4, r.Pools)
		if len(pools) == 0 && !wanted[is4].IsValid() {
			continue
		}
		l, back, err := a.grantLocked(pools, r, wanted[is4])
		if err != nil {
			for _, f := range undo {
				f()
			}
			return nil, err
		}
		granted = append(granted, l)
		undo = append(undo, back)
	}
	return granted, nil
}

// lease returns a lease of an address for the request.
func (r *Request) lease(address netip.Addr, now time.Time) Lease {
	return Lease{Address: address, Holder: r.Holder, Namespace: r.Namespace, Pod: r.Pod, Since: now}
}

// grantLocked grants the wanted address, or any address of pools. The returned function undoes the grant. Blocks are
// filled one after the other, so that the last ones become empty and can be released.
func (a *Allocator) grantLocked(pools []*poolState, r Request, wanted netip.Addr) (Lease, func(), error) {
	now := a.now()
	blocks := blocksOf(pools)
	if wanted.IsValid() {
		s := a.poolOfLocked(wanted)
		b := s.blockOf(wanted)
		if held, ok := heldIn(append(slices.Clip(blocks), s.blocks...), r.Holder); ok {
			return held.Lease, func() {}, held.unless(wanted)
		}
		if by := a.occupied.from(wanted, r.Claim); by != "" {
			return Lease{}, nil, ErrOccupied{Address: wanted, By: by, IsClaim: a.occupied.machines[wanted] == ""}
		}
		if b == nil {
			return Lease{}, nil, ErrOutside{Address: wanted, Pool: s.Name, Elsewhere: s.isForPods(wanted)}
		}
		if e := b.entries[wanted]; e != nil && e.State == Withheld {
			return Lease{}, nil, ErrOutside{Address: wanted, Pool: b.Name, Elsewhere: true}
		}
		if err := b.grantable(wanted, r.From); err != nil {
			return Lease{}, nil, err
		}
		if err := b.restsFor(wanted, r.Namespace, now); err != nil {
			return Lease{}, nil, err
		}
		return b.grant(r.lease(wanted, now)), func() { b.undo(r.Holder) }, nil
	}
	if held, ok := heldIn(blocks, r.Holder); ok {
		return held.Lease, func() {}, nil
	}
	for _, b := range blocks {
		if address, ok := b.pick(now); ok {
			return b.grant(r.lease(address, now)), func() { b.undo(r.Holder) }, nil
		}
	}
	return Lease{}, nil, exhausted(pools)
}

func heldIn(blocks []*blockState, holder string) (*entry, bool) {
	for _, b := range blocks {
		if e := b.heldBy(holder); e != nil {
			return e, true
		}
	}
	return nil, false
}

// Commit commits the holder's pending leases.
func (a *Allocator) Commit(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.ofHolderLocked(holder) {
		b.commit(holder)
	}
}

// Undo restores the state before the holder's pending leases, without a cool-down.
func (a *Allocator) Undo(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.ofHolderLocked(holder) {
		b.undo(holder)
	}
}

// Release releases all addresses of the holder; their cool-down begins. A holder may have none.
func (a *Allocator) Release(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, b := range a.ofHolderLocked(holder) {
		b.release(holder, now, now.Add(a.coolDown))
	}
}

// Released returns the holder's leases as Release would leave them now.
func (a *Allocator) Released(holder string) []Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var leases []Lease
	for _, b := range a.ofHolderLocked(holder) {
		leases = append(leases, b.heldBy(holder).cooled(now, now.Add(a.coolDown)))
	}
	return leases
}

// Cooled returns a lease as its release would leave it now.
func (a *Allocator) Cooled(l Lease) Lease {
	now := a.now()
	return l.cooled(now, now.Add(a.coolDown))
}

func exhausted(pools []*poolState) ErrExhausted {
	e := ErrExhausted{NoBlock: true}
	var names []string
	for _, s := range pools {
		names = append(names, s.Name)
		for _, b := range s.blocks {
			e.NoBlock = e.NoBlock && b.closed
			if b.closed {
				continue
			}
			e.Occupied += uint64(len(b.skipped()))
			if len(b.released) == 0 {
				continue
			}
			e.Cooling += uint64(len(b.released))
			if next := b.released[0].FreeAt; e.NextFree.IsZero() || next.Before(e.NextFree) {
				e.NextFree = next
			}
		}
	}
	e.Pool = strings.Join(names, ", ")
	return e
}

// Restore restores the leases of an earlier run, before the first Lease. Of leases of one address the first wins. Used
// and leased addresses are used afterwards. Cooling addresses are free after at most one cool-down from now, even if
// the clock was changed. The pool of an address is the one whose prefix contains it now. The error lists leases that
// are skipped because they are invalid.
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
		case Internal, Withheld, Occupied: // set by ClaimInternal, Withhold and Occupy
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
	if s := a.poolOfLocked(l.Address); s != nil && s.blockOf(l.Address) == nil {
		return s.stray(l)
	}
	b, err := a.restorableLocked(l.Address)
	if err != nil {
		return fmt.Errorf("restore lease of %s: %w", l.Holder, err)
	}
	if held, ok := b.holders[l.Holder]; ok || l.Holder == "" {
		return fmt.Errorf("restore lease of %q on %s: it holds %s", l.Holder, l.Address, held)
	}
	b.grant(l)
	b.commit(l.Holder)
	return nil
}

func (a *Allocator) restoreCoolingLocked(l Lease) error {
	b, err := a.restorableLocked(l.Address)
	if inUse := (ErrInUse{}); errors.As(err, &inUse) {
		return nil // granted since
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
