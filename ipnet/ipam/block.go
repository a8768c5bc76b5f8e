package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// A block passes these states; an address that is withheld is given out by other nodes meanwhile:
//
//	      AddBlock         CloseBlock           RemoveBlock, once no pod has an address
//	none ----------> open <----------> closed ----------------------------------------> none
//	                       AddBlock

// AddBlock gives out the addresses of a block of a pool of several nodes, but for those withheld; it may be called again. A
// block that was closed is open again. Addresses that were restored before are their holders' still.
func (a *Allocator) AddBlock(block netip.Prefix, withheld ...netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stockOfLocked(block.Addr())
	if err := s.takes(block); err != nil {
		return fmt.Errorf("block %s: %w", block, err)
	}
	b := s.book(block)
	if b == nil {
		b = newBook(s.Pool, block, s.handles)
		s.books = append(s.books, b)
		s.adopt(b)
	}
	b.closed = false
	var errs []error
	for _, address := range withheld {
		errs = append(errs, a.withholdLocked(b, address))
	}
	return errors.Join(errs...)
}

// takes says why a block cannot be one of the pool's.
func (s *stock) takes(block netip.Prefix) error {
	switch {
	case s == nil:
		return errors.New("it is in no pool")
	case !s.Blocks:
		return fmt.Errorf("pool %s is this node's as a whole", s.Name)
	case block != block.Masked() || block.Bits() < s.Prefix.Bits():
		return fmt.Errorf("it is none of pool %s, which is %s", s.Name, s.Prefix)
	}
	for _, b := range s.books {
		if b.block != block && b.block.Overlaps(block) && !b.block.IsSingleIP() {
			return fmt.Errorf("it overlaps block %s", b.block)
		}
	}
	return nil
}

// adopt moves what is known of single addresses into the book of the block around them: strays, or what another node lent.
func (s *stock) adopt(b *book) {
	s.books = slices.DeleteFunc(s.books, func(stray *book) bool {
		if stray == b || !stray.block.IsSingleIP() || !b.block.Overlaps(stray.block) {
			return false
		}
		for address, e := range stray.entries {
			if !e.held() {
				stray.released.take(e)
				b.entries[address] = e
				b.cool(e, e.Lease)
				continue
			}
			b.entries[address] = e
			if e.isPods() {
				stray.unbind(e.Holder)
				b.bind(e.Holder, address)
			}
			b.leased, b.used, b.reserved = b.leased+stray.leased, b.used+stray.used, b.reserved+stray.reserved
		}
		return true
	})
}

// CloseBlock gives out no more of a block's addresses; those that are used stay. It reports whether the block is there.
func (a *Allocator) CloseBlock(block netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.blockLocked(block); b != nil {
		b.closed = true
		return true
	}
	return false
}

// RemoveBlock forgets a block of which no address is held or cools down, or that is not there, and reports true. Any other
// one is closed. A single address may cool down: the node that lent it lets it rest.
func (a *Allocator) RemoveBlock(block netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.blockLocked(block)
	if b == nil {
		return true
	}
	b.closed = true
	if b.block.IsSingleIP() && b.leased+b.used > 0 || !b.block.IsSingleIP() && !b.isEmpty(a.now()) {
		return false
	}
	s := a.stockOfLocked(block.Addr())
	s.books = slices.DeleteFunc(s.books, func(o *book) bool { return o == b })
	return true
}

// Block is a part of a pool that this node gives out addresses of.
type Block struct {
	Pool     string
	Prefix   netip.Prefix
	Closed   bool       // no address is given out any more
	Empty    bool       // no address is held or cools down: RemoveBlock forgets it
	Internal netip.Addr // the node's own; not valid if it is not in this block
	Stats    Stats      // of pods' addresses
}

// Block says how a block stands; false: it is not there.
func (a *Allocator) Block(block netip.Prefix) (Block, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.blockLocked(block)
	if b == nil {
		return Block{}, false
	}
	return b.standing(a.now()), true
}

// Blocks lists the blocks of all pools of several nodes, in the order in which they came.
func (a *Allocator) Blocks() []Block {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var blocks []Block
	for _, s := range a.stocks {
		for _, b := range s.books {
			if s.Blocks {
				blocks = append(blocks, b.standing(now))
			}
		}
	}
	return blocks
}

func (b *book) standing(now time.Time) Block {
	return Block{Pool: b.Name, Prefix: b.block, Closed: b.closed, Empty: b.isEmpty(now), Internal: b.internal(), Stats: b.stats(now)}
}

// ClaimInternal makes an address of a block the node's own: that one, also of a closed block, or, if it is not valid, the
// lowest that was never used. It is never given out, and its block never removed.
func (a *Allocator) ClaimInternal(block netip.Prefix, address netip.Addr) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.blockLocked(block)
	if b == nil {
		return netip.Addr{}, fmt.Errorf("block %s is not this node's", block)
	}
	if !address.IsValid() {
		var ok bool
		if address, ok = b.fresh(); !ok {
			return netip.Addr{}, fmt.Errorf("block %s has no address that was never used", block)
		}
	} else if err := b.restorable(address); err != nil {
		return netip.Addr{}, err
	}
	b.forget(address)
	b.reserve(Lease{Pool: b.Name, Address: address, Holder: InternalHolder, State: Internal, Since: a.now()})
	return address, nil
}

// ReturnInternal is the inverse of ClaimInternal.
func (a *Allocator) ReturnInternal(address netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unreserveLocked(address, Internal)
}

// Withhold takes an address of a block out of what is given out: the wanted one, if no pod has it, also while it cools
// down, or any free one if wanted is not valid. It returns an invalid address if there is none.
func (a *Allocator) Withhold(block netip.Prefix, wanted netip.Addr) netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.blockLocked(block)
	if b == nil {
		return netip.Addr{}
	}
	if !wanted.IsValid() {
		wanted, _ = b.pick(a.now())
	}
	if !wanted.IsValid() || a.withholdLocked(b, wanted) != nil {
		return netip.Addr{}
	}
	return wanted
}

func (a *Allocator) withholdLocked(b *book, address netip.Addr) error {
	if e, known := b.entries[address]; known && e.State == Withheld {
		return nil
	}
	if !b.block.Contains(address) {
		return fmt.Errorf("withhold %s: it is not in block %s", address, b.block)
	}
	if err := b.grantable(address, nil); err != nil {
		return fmt.Errorf("withhold: %w", err)
	}
	b.forget(address)
	b.reserve(Lease{Pool: b.Name, Address: address, Holder: OtherHolder, State: Withheld, Since: a.now()})
	return nil
}

// Return lets an address that was withheld be given out again. Who had it elsewhere is remembered a while, so it cools down
// first.
func (a *Allocator) Return(address netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.unreserveLocked(address, Withheld); b != nil {
		b.returned = slices.DeleteFunc(b.returned, func(r netip.Addr) bool { return r == address })
		now := a.now()
		e := &entry{}
		b.entries[address] = e
		b.cool(e, Lease{Pool: b.Name, Address: address, Holder: OtherHolder}.cooled(now, now.Add(a.coolDown)))
	}
}

// unreserveLocked makes an address one that was never used, if it is in that state.
func (a *Allocator) unreserveLocked(address netip.Addr, state State) *book {
	s := a.stockOfLocked(address)
	if s == nil {
		return nil
	}
	b := s.bookOf(address)
	if b == nil || b.entries[address] == nil || b.entries[address].State != state {
		return nil
	}
	delete(b.entries, address)
	b.reserved--
	b.giveBack(address)
	return b
}

func (a *Allocator) blockLocked(block netip.Prefix) *book {
	s := a.stockOfLocked(block.Addr())
	if s == nil || !s.Blocks {
		return nil
	}
	return s.book(block)
}

// Gives reports whether an address is of those that this node gives out, now or later.
func (a *Allocator) Gives(address netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.stockOfLocked(address)
	if s == nil || s.bookOf(address) == nil {
		return false
	}
	e := s.bookOf(address).entries[address]
	return e == nil || e.State != Withheld
}
