package blocks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// ledger has the blocks of this node and the addresses lent to it, as they are stored durably and in Local.
type ledger struct {
	config *Config
	held   map[string]*held
	gone   map[string]bool // UIDs of former blocks of this node, which never belong to it again
	loans  loans
	kept   []v1.IPBlock // as stored last
}

// know holds a block of an earlier run, or uses its loans to this node.
func (l *ledger) know(b *v1.IPBlock) error {
	if !l.isOurs(b) {
		l.loans.owes = true
		return l.loans.take(b)
	}
	if err := l.hold(b); err != nil && !errors.Is(err, ErrNoNetwork) {
		return err
	}
	l.held[b.Name].unsure = true
	return nil
}

// sorted lists the held blocks by name.
func (l *ledger) sorted() []*held {
	return slices.SortedFunc(maps.Values(l.held), func(x, y *held) int { return cmp.Compare(x.name, y.name) })
}

// blocks is [Keeper.Blocks].
func (l *ledger) blocks() []v1.IPBlock {
	var blocks []v1.IPBlock
	for _, h := range l.sorted() {
		if h.isOurs() {
			b := h.object.DeepCopy()
			b.Spec.Offered = texts(h.Withheld)
			blocks = append(blocks, *b)
		}
	}
	lenders := make(map[string]*v1.IPBlock)
	for _, borrowed := range l.loans.all {
		if !borrowed.taken {
			lenders[borrowed.object.Name] = borrowed.object
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lenders)) {
		blocks = append(blocks, *l.loans.used(lenders[name]))
	}
	return blocks
}

// keep stores the blocks durably if they changed.
func (l *ledger) keep() error {
	blocks := l.blocks()
	if l.config.Keep == nil || equality.Semantic.DeepEqual(blocks, l.kept) {
		return nil
	}
	if err := l.config.Keep(blocks); err != nil {
		return fmt.Errorf("store the blocks of addresses: %w", err)
	}
	l.kept = blocks
	return nil
}

// hold allows the allocation of addresses of this node's block.
func (l *ledger) hold(b *v1.IPBlock) error {
	prefix, err := Parse(b)
	if err != nil {
		return err
	}
	h := &held{
		Block: netaddr.Block{
			Network:  string(b.Spec.Network),
			Prefix:   prefix,
			Withheld: v1.Addresses(b.Spec.Offered),
		},
		pool:   b.Spec.Pool,
		name:   b.Name,
		object: b,
	}
	l.held[b.Name] = h
	// Addresses of the block that were lent to this node are its own now.
	maps.DeleteFunc(l.loans.all, func(_ addressKey, borrowed *loan) bool { return borrowed.name == b.Name })
	if err := l.keep(); err != nil { // before a pod can have an address of it
		delete(l.held, b.Name)
		return err
	}
	err = l.config.Local.Add(h.Block)
	h.closed = errors.Is(err, ErrNoNetwork) // Step opens it with the network, or releases it after the grace
	if err != nil && !h.closed {
		delete(l.held, b.Name)
	}
	if err != nil {
		return fmt.Errorf("use block %s: %w", b.Name, err)
	}
	h.count(l.config.Local.Usage(h.Block), l.config.Now())
	l.config.Log.Info("block claimed", "block", b.Name, "pool", b.Spec.Pool, "network", b.Spec.Network)
	return nil
}

// forget records that a block does not belong to this node any more. An object with its UID never does again, although
// an old watch may show it.
func (l *ledger) forget(h *held) {
	delete(l.held, h.name)
	l.gone[string(h.object.UID)] = true
}

// isOurs reports whether a block, which may be nil, belongs to this node.
func (l *ledger) isOurs(b *v1.IPBlock) bool {
	return nodeOf(b) == l.config.Node && b.DeletionTimestamp == nil
}

// refresh takes over the object of a block. Addresses that other nodes may have borrowed are withheld.
func (l *ledger) refresh(h *held, b *v1.IPBlock) error {
	more := h.closed || h.taken
	h.object = b
	h.unsure = false
	h.closed = false
	h.taken = false
	h.told = false
	for _, a := range v1.Addresses(b.Spec.Offered) {
		if !slices.Contains(h.Withheld, a) {
			h.Withheld = append(h.Withheld, a)
			more = true
		}
	}
	if !more {
		return nil
	}
	return l.open(h)
}

// open allows the allocation of a block's addresses as soon as the node has its network.
func (l *ledger) open(h *held) error {
	err := l.config.Local.Add(h.Block)
	h.closed = errors.Is(err, ErrNoNetwork)
	return ignoring(func(error) bool { return h.closed }, err)
}

// close stops allocating addresses: other nodes get the blocks some time after the Node object is gone. When it is
// back, takeOver opens the blocks that still belong to this node.
func (l *ledger) close() {
	for _, h := range l.held {
		if !h.leaving && !h.closed {
			h.closed = true
			l.config.Local.Remove(h.Block)
		}
	}
	for _, borrowed := range l.loans.all {
		if !borrowed.leaving && !borrowed.closed {
			borrowed.closed = true
			l.config.Local.Remove(borrowed.Block)
		}
	}
}

func (l *ledger) count() {
	for _, h := range l.held {
		h.count(l.config.Local.Usage(h.Block), l.config.Now())
	}
	for _, borrowed := range l.loans.all {
		borrowed.count(l.config.Local.Usage(borrowed.Block), l.config.Now())
	}
}

// held is a block of this node with its state.
type held struct {
	netaddr.Block
	pool       string // of an IPPool; "" for a block of a custom network
	name       string
	object     *v1.IPBlock // its last known state in the API server
	usage      Usage
	emptySince time.Time
	leaving    bool // removed from Local, not yet from the API server
	unsure     bool // known from an earlier run: the API server may have another version
	closed     bool // no address is allocated from it: the Node object was missing
	taken      bool // another node owns it, and all pods of this node that use it are isolated
	told       bool // the other owner was reported

	requested map[v1.AddressRequest]time.Time // when each request of the object was first seen
}

// isOurs reports whether the block counts as one of this node.
func (h *held) isOurs() bool { return !h.leaving && !h.taken }

// lent reports whether other nodes use addresses of the block, or may borrow them.
func (h *held) lent() bool { return len(h.object.Spec.Offered)+len(h.object.Spec.Borrowed) > 0 }

func (h *held) isOf(p PoolCIDR) bool {
	return h.pool == p.Name && h.Network == p.Network && p.Has(h.Prefix)
}

func (h *held) count(u Usage, now time.Time) {
	switch {
	case !u.empty():
		h.emptySince = time.Time{}
	case h.emptySince.IsZero():
		h.emptySince = now
	}
	h.usage = u
}
