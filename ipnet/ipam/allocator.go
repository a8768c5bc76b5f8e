package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultCoolDown is how long an address rests after its release: others need that long to forget who had it.
const DefaultCoolDown = 30 * time.Second

// Config is what an [Allocator] is made of.
type Config struct {
	Pools    []Pool           // in the order in which they are tried
	CoolDown time.Duration    // default [DefaultCoolDown]; negative: none
	Now      func() time.Time // default time.Now
}

// Allocator gives out addresses. Its methods may be called by several goroutines.
type Allocator struct {
	coolDown time.Duration
	now      func() time.Time

	mu      sync.Mutex
	stocks  []*stock // in the order of the pools
	handles handles
}

// New makes an allocator whose pools are free, but for each pool's node address, which is claimed here: before any
// pod can ask. A pool of several nodes has no addresses before AddBlock.
func New(c Config) (*Allocator, error) {
	if err := validPools(c.Pools); err != nil {
		return nil, err
	}
	a := &Allocator{coolDown: c.CoolDown, now: c.Now, handles: make(handles)}
	if a.coolDown == 0 {
		a.coolDown = DefaultCoolDown
	}
	a.coolDown = max(a.coolDown, 0)
	if a.now == nil {
		a.now = time.Now
	}
	for _, p := range c.Pools {
		a.stocks = append(a.stocks, newStock(p, a.handles, a.now()))
	}
	return a, nil
}

// Request asks for one address of each family that has pools.
type Request struct {
	Holder    string
	Addresses []netip.Addr // those wanted, at most one a family; a family without one gets any
	Pools     []string     // where any is taken from, best first; nil: from all that are enabled and for all namespaces
	From      []string     // holders that a wanted address may be taken from; they lose it with the Commit
}

// Lease grants all that r asks for, IPv4 first, or nothing. Addresses that the holder has already are granted again.
// A lease is pending until Commit or Undo of its holder.
//
// The error is an [ErrExhausted], [ErrInUse] or [ErrOutside], or says that r makes no sense. An address that cools
// down is granted only to who asks for that very one.
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
		stocks := a.familyLocked(is4, r.Pools)
		if len(stocks) == 0 && !wanted[is4].IsValid() {
			continue
		}
		l, back, err := a.grantLocked(stocks, r, wanted[is4])
		if err != nil {
			for _, f := range undo {
				f()
			}
			return nil, err
		}
		granted, undo = append(granted, l), append(undo, back)
	}
	return granted, nil
}

// grantLocked gives the holder an address: the wanted one, else one of stocks. The function it returns takes back what was
// not the holder's before. Blocks are filled one after the other, so that the last ones can be given up.
func (a *Allocator) grantLocked(stocks []*stock, r Request, wanted netip.Addr) (Lease, func(), error) {
	now := a.now()
	books := booksOf(stocks)
	if wanted.IsValid() {
		s := a.stockOfLocked(wanted)
		b := s.bookOf(wanted)
		if held, ok := heldIn(append(slices.Clip(books), s.books...), r.Holder); ok {
			return held.Lease, func() {}, held.unless(wanted)
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
		return b.grant(wanted, r.Holder, now), func() { b.undo(r.Holder) }, nil
	}
	if held, ok := heldIn(books, r.Holder); ok {
		return held.Lease, func() {}, nil
	}
	for _, b := range books {
		if address, ok := b.pick(now); ok {
			return b.grant(address, r.Holder, now), func() { b.undo(r.Holder) }, nil
		}
	}
	return Lease{}, nil, exhausted(stocks)
}

func heldIn(books []*book, holder string) (*entry, bool) {
	for _, b := range books {
		if e := b.heldBy(holder); e != nil {
			return e, true
		}
	}
	return nil, false
}

// Commit makes what the holder leased its own.
func (a *Allocator) Commit(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.ofHolderLocked(holder) {
		b.commit(holder)
	}
}

// Undo takes back what the holder leased and did not commit: all is as it was before the lease, without cooling down.
func (a *Allocator) Undo(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.ofHolderLocked(holder) {
		b.undo(holder)
	}
}

// Release takes back all that the holder has; it cools down from now on. Releasing nothing is no error.
func (a *Allocator) Release(holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for _, b := range a.ofHolderLocked(holder) {
		b.release(holder, now, now.Add(a.coolDown))
	}
}

// Released is what Release would leave of the holder's leases if it came now.
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

// Cooled is a lease as its release now would leave it.
func (a *Allocator) Cooled(l Lease) Lease {
	now := a.now()
	return l.cooled(now, now.Add(a.coolDown))
}

func (a *Allocator) wantedLocked(addresses []netip.Addr) (map[bool]netip.Addr, error) {
	wanted := make(map[bool]netip.Addr)
	for _, address := range addresses {
		if a.stockOfLocked(address) == nil {
			return nil, ErrOutside{Address: address}
		}
		if wanted[address.Is4()].IsValid() {
			return nil, errors.New("more than one address of a family is asked for")
		}
		wanted[address.Is4()] = address
	}
	return wanted, nil
}

// familyLocked are the pools of a family: the named ones in that order, else those that are for everybody.
func (a *Allocator) familyLocked(is4 bool, names []string) []*stock {
	var stocks []*stock
	for _, s := range a.stocks {
		if s.Prefix.Addr().Is4() != is4 {
			continue
		}
		if slices.Contains(names, s.Name) || names == nil && !s.Disabled && len(s.Namespaces) == 0 {
			stocks = append(stocks, s)
		}
	}
	slices.SortStableFunc(stocks, func(x, y *stock) int {
		return cmp.Compare(slices.Index(names, x.Name), slices.Index(names, y.Name))
	})
	return stocks
}

func exhausted(stocks []*stock) ErrExhausted {
	e := ErrExhausted{NoBlock: true}
	var names []string
	for _, s := range stocks {
		names = append(names, s.Name)
		for _, b := range s.books {
			e.NoBlock = e.NoBlock && b.closed
			if b.closed || len(b.released) == 0 {
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
