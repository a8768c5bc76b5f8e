package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// States of a block; other nodes allocate its withheld addresses:
//
//	      AddBlock         CloseBlock           RemoveBlock, if no pod has an address
//	none ----------> open <----------> closed ----------------------------------------> none
//	                       AddBlock

// nodeBlocks are the blocks that this node has of pools that nodes share.
type nodeBlocks struct{ *ledger }

// AddBlock opens a block of a pool that nodes share, and withholds addresses. It may be repeated, and reopens a closed
// block. Restored addresses stay with their holders.
func (n *nodeBlocks) AddBlock(block netip.Prefix, withheld ...netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.poolOfLocked(block.Addr())
	if err := s.takes(block); err != nil {
		return fmt.Errorf("block %s: %w", block, err)
	}
	b := s.blockAt(block)
	if b == nil {
		b = newBlockState(s.Pool, block, s.shared)
		s.blocks = append(s.blocks, b)
		s.adopt(b)
	}
	b.closed = false
	var errs []error
	for _, address := range withheld {
		errs = append(errs, n.withholdLocked(b, address))
	}
	return errors.Join(errs...)
}

// takes returns an error if a block cannot be added to the pool.
func (s *poolState) takes(block netip.Prefix) error {
	switch {
	case s == nil:
		return errors.New("it is in no pool")
	case !s.Blocks:
		return fmt.Errorf("pool %s has no blocks: this node owns the whole prefix", s.Name)
	case block != block.Masked() || block.Bits() < s.Prefix.Bits():
		return fmt.Errorf("it is not a block of pool %s (%s)", s.Name, s.Prefix)
	}
	for _, b := range s.blocks {
		if b.block != block && b.block.Overlaps(block) && !b.block.IsSingleIP() {
			return fmt.Errorf("it overlaps block %s", b.block)
		}
	}
	return nil
}

// adopt moves the entries of single addresses, stray or borrowed, into the block that contains them.
func (s *poolState) adopt(b *blockState) {
	s.blocks = slices.DeleteFunc(s.blocks, func(stray *blockState) bool {
		if stray == b || !stray.block.IsSingleIP() || !b.block.Overlaps(stray.block) {
			return false
		}
		for address, e := range stray.entries {
			if !e.held() {
				stray.dequeue(e)
				b.entries[address] = e
				b.cool(e, e.Lease)
				continue
			}
			b.entries[address] = e
			if e.isPods() {
				stray.unbind(e.Holder)
				b.bind(e.Holder, address)
			}
			b.leased = b.leased + stray.leased
			b.used = b.used + stray.used
			b.reserved = b.reserved + stray.reserved
		}
		return true
	})
}

// CloseBlock stops grants from a block; used addresses stay. It reports whether the block exists.
func (n *nodeBlocks) CloseBlock(block netip.Prefix) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b := n.blockLocked(block); b != nil {
		b.closed = true
		return true
	}
	return false
}

// RemoveBlock removes a block without addresses that are held or cool down, and reports whether it is gone. A block
// with such addresses is closed. A borrowed single address may cool down: its owner applies the cool-down.
func (n *nodeBlocks) RemoveBlock(block netip.Prefix) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.blockLocked(block)
	if b == nil {
		return true
	}
	b.closed = true
	if b.block.IsSingleIP() && b.leased+b.used > 0 || !b.block.IsSingleIP() && !b.isEmpty(n.now()) {
		return false
	}
	s := n.poolOfLocked(block.Addr())
	s.blocks = slices.DeleteFunc(s.blocks, func(o *blockState) bool { return o == b })
	return true
}

// BlockStatus is the state of a part of a pool from which this node allocates addresses.
type BlockStatus struct {
	Pool     string
	Prefix   netip.Prefix
	Closed   bool       // grants no address
	Empty    bool       // no address is held or cools down: RemoveBlock removes it
	Internal netip.Addr // the node's own address; invalid if it is not in this block
	Stats    Stats      // of pods' addresses
}

// Block returns the state of a block; false if it does not exist.
func (n *nodeBlocks) Block(block netip.Prefix) (BlockStatus, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.blockLocked(block)
	if b == nil {
		return BlockStatus{}, false
	}
	return b.status(n.now()), true
}

// Blocks lists the states of the blocks of pools that nodes share, in the order in which they were added.
func (n *nodeBlocks) Blocks() []BlockStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	var blocks []BlockStatus
	for _, s := range n.pools {
		for _, b := range s.blocks {
			if s.Blocks {
				blocks = append(blocks, b.status(now))
			}
		}
	}
	return blocks
}

func (b *blockState) status(now time.Time) BlockStatus {
	return BlockStatus{
		Pool:     b.Name,
		Prefix:   b.block,
		Closed:   b.closed,
		Empty:    b.isEmpty(now),
		Internal: b.internal(),
		Stats:    b.stats(now),
	}
}

// ClaimInternal makes an address of a block the node's own: the given one, also of a closed block, or, if it is
// invalid, the lowest that was never used. The address is never granted, and its block is never removed.
func (n *nodeBlocks) ClaimInternal(block netip.Prefix, address netip.Addr) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.blockLocked(block)
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
	b.reserve(Lease{Pool: b.Name, Address: address, Holder: InternalHolder, State: Internal, Since: n.now()})
	return address, nil
}

// ReturnInternal is the inverse of ClaimInternal.
func (n *nodeBlocks) ReturnInternal(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unreserveLocked(address, Internal)
}

// Withhold excludes an address of a block from allocation: the wanted one, unless a pod or a machine has it, or it
// cools down and a pod of another namespace than this one had it; or any free one if wanted is invalid. It returns an
// invalid address if there is none.
func (n *nodeBlocks) Withhold(block netip.Prefix, wanted netip.Addr, namespace string) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.blockLocked(block)
	if b == nil {
		return netip.Addr{}
	}
	if !wanted.IsValid() {
		wanted, _ = b.pick(n.now())
	}
	if !wanted.IsValid() || !b.isGrantable(wanted) || b.occupied.machines[wanted] != "" ||
		b.restsFor(wanted, namespace, n.now()) != nil || n.withholdLocked(b, wanted) != nil {
		return netip.Addr{}
	}
	return wanted
}

func (n *nodeBlocks) withholdLocked(b *blockState, address netip.Addr) error {
	if e, known := b.entries[address]; known && e.State == Withheld {
		return nil
	}
	if !b.block.Contains(address) {
		return fmt.Errorf("withhold %s: it is not in block %s", address, b.block)
	}
	if err := b.grantable(address, nil); err != nil && !b.isReservedSince(address, err) {
		return fmt.Errorf("withhold: %w", err)
	}
	b.forget(address)
	b.reserve(Lease{Pool: b.Name, Address: address, Holder: OtherHolder, State: Withheld, Since: n.now()})
	return nil
}

// Return ends the withholding of an address. Caches still have its holder on the other node, so it cools down first.
func (n *nodeBlocks) Return(address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b := n.unreserveLocked(address, Withheld); b != nil {
		b.withdraw(address)
		now := n.now()
		e := &entry{}
		b.entries[address] = e
		b.cool(e, Lease{Pool: b.Name, Address: address, Holder: OtherHolder}.cooled(now, now.Add(n.coolDown)))
	}
}

// Allocates reports whether this node allocates an address, now or later.
func (n *nodeBlocks) Allocates(address netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.poolOfLocked(address)
	if s == nil || s.blockOf(address) == nil {
		return false
	}
	e := s.blockOf(address).entries[address]
	return e == nil || e.State != Withheld
}
