// Package blocks cuts the cluster's pools into blocks that nodes claim, each for itself and ahead of need.
//
// The name of a block's object follows from its network and CIDR, so the API server lets only one node create it. A
// node allocates addresses of a block only while the block belongs to it in the API server:
//
//	           claim: create, or compare and swap              Local.Add
//	unclaimed ------------------------------------> the node's -----------> in use
//	   ^                                               |  ^                    |
//	   |         delete, if UID and version match      |  |  an address is held |
//	   +-----------------------------------------------+  +--------------------+  Local.Remove: all are free
package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/retry"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// store is the cluster's blocks. It returns the errors of the API server: IsNotFound, IsAlreadyExists and IsConflict
// mean that the write had no effect. After other errors the effect is unknown.
type store interface {
	Get(ctx context.Context, name string) (*v1.IPBlock, error)
	// List lists the blocks of a pool: their current state if fresh, else one that may be a little old.
	List(ctx context.Context, p PoolCIDR, fresh bool) ([]v1.IPBlock, error)
	Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
	// Update writes b if the object still has its resource version.
	Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
	// Delete deletes the object if it still has b's UID and resource version.
	Delete(ctx context.Context, b *v1.IPBlock) error
}

// local allocates the addresses on this node. Network and prefix identify a block.
type local interface {
	// Add allows the allocation of the block's addresses except those withheld, also after Remove. The error is an
	// [ErrNoNetwork] if the node does not have the network.
	Add(b netaddr.Block) error
	// Remove stops the allocation of the block's addresses. If none is held or cooling it forgets the block and returns
	// true; else the block stays, closed. A single address may be cooling: it rests with its lender.
	Remove(b netaddr.Block) bool
	Usage(b netaddr.Block) Usage
	// Withhold reserves an address to be lent: the wanted one if no pod has it, also while it is cooling after a pod of
	// the namespace, or any free one if wanted is invalid. It returns an invalid address if no address is free.
	Withhold(b netaddr.Block, wanted netip.Addr, namespace string) netip.Addr
	// Return allows the allocation of a withheld address again.
	Return(b netaddr.Block, address netip.Addr)
}

// watch shows the blocks of the cluster, as k8s/nodeview.Cluster does.
type watch interface {
	// Blocks returns the blocks of this node; false: the watch has not shown all yet.
	Blocks() ([]*v1.IPBlock, bool)
	// ForeignBlock returns another node's block, or nil.
	ForeignBlock(name string) *v1.IPBlock
}

// ErrNoNetwork means that a block belongs to a network that the node does not have: it is deleted, or not known yet.
var ErrNoNetwork = errors.New("the node does not have this network")

// Config configures a [Keeper]. Node, Owner, Store, Local, Watch and Pools are required.
type Config struct {
	Node  string
	Owner func() string // UID of the Node object; "": it is missing; no block is claimed and no address allocated
	Store store
	Local local
	Watch watch
	// Pools returns the pools in the order of their use, and whether they are all: others are deleted, and not just
	// unknown yet.
	Pools func() (pools []PoolCIDR, all bool)
	Marks func() Marks // default [DefaultMarks]

	// Taken is called at each step for a block that another node owns while pods of this node use its addresses. It
	// reports whether these pods are isolated durably. Until then the keeper stores the block, so that a restarted
	// keeper calls Taken too. Optional.
	Taken func(b netaddr.Block, by string) (isolated bool)
	Durable

	Interval time.Duration // between steps, default 5 s
	Now      func() time.Time
	Log      *slog.Logger
}

// Durable are the blocks that outlive a restart.
type Durable struct {
	// Known are the blocks that an earlier run stored: addresses are allocated from them before the API server answers.
	Known []v1.IPBlock
	// Keep stores the blocks durably. It is called after each change, and before an address is offered to others: a
	// restart without an API server must not allocate it. Nil: the node offers no addresses.
	Keep func([]v1.IPBlock) error
}

func (c Config) withDefaults() Config {
	if c.Marks == nil {
		c.Marks = DefaultMarks
	}
	if c.Taken == nil {
		c.Taken = func(netaddr.Block, string) bool { return true }
	}
	c.Interval = cmp.Or(c.Interval, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Keeper provides a node with the blocks that its pods need: some ahead of need, and none for long without need.
type Keeper struct {
	config Config
	poke   chan struct{}
	asks   chan ask
	turn   chan struct{} // has a token during a step or a claim, which wait for the API server

	mu        sync.Mutex // a step and a claim hold it, except while they wait for the API server
	ledger    ledger
	ownership ownership
	lender    lender
	exhausted map[string]time.Time // by pool, when it was seen without a block for this node
	wanted    map[string]bool      // by pool: a pod waits
}

// New makes a keeper that has the known blocks.
func New(c Config) (*Keeper, error) {
	c = c.withDefaults()
	if c.Node == "" || c.Owner == nil || c.Store == nil || c.Local == nil || c.Watch == nil || c.Pools == nil {
		return nil, errors.New("blocks: Node, Owner, Store, Local, Watch and Pools are needed")
	}
	h := fnv.New64a()
	h.Write([]byte(c.Node))
	random := rand.New(rand.NewPCG(h.Sum64(), uint64(c.Now().UnixNano())))
	k := &Keeper{
		config: c, poke: make(chan struct{}, 1), asks: make(chan ask), turn: make(chan struct{}, 1),
		exhausted: make(map[string]time.Time), wanted: make(map[string]bool),
	}
	k.config.Store = unlocking{store: c.Store, mu: &k.mu}
	k.ledger = ledger{config: &k.config, held: make(map[string]*held), gone: make(map[string]bool), loans: loans{
		config: &k.config, random: random, keep: k.ledger.keep, all: make(map[addressKey]*loan),
		began: c.Now(), scanned: make(map[string]bool), unanswered: make(map[string]time.Time),
	}}
	claims := claimer{store: k.config.Store, node: c.Node, held: k.ledger.held, seed: h.Sum64(), random: random}
	k.ownership = ownership{ledger: &k.ledger, claims: claims}
	k.lender = lender{ownership: &k.ownership, poke: k.Poke}
	k.config.Keep = nil // the known blocks are stored already
	for _, b := range c.Known {
		if err := k.ledger.know(&b); err != nil {
			return nil, err
		}
	}
	k.config.Keep = c.Keep
	k.ledger.kept = k.ledger.blocks()
	return k, nil
}

// Poke triggers a step soon: an address was allocated or released, or the configuration changed.
func (k *Keeper) Poke() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Blocks lists the blocks that this node allocates addresses from, by name: its own blocks, then the blocks that lend
// it addresses.
func (k *Keeper) Blocks() []v1.IPBlock {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ledger.blocks()
}

// Step takes over the state of the API server, then claims and releases blocks up to the water marks.
func (k *Keeper) Step(ctx context.Context) error {
	end, err := k.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	observed, complete := k.config.Watch.Blocks()
	if !complete {
		return nil
	}
	if k.config.Owner() == "" {
		k.ledger.close()
		return nil
	}
	err = k.ownership.takeOver(ctx, observed)
	k.ledger.count()
	pools, all := k.config.Pools()
	for _, p := range pools {
		err = errors.Join(err, k.level(ctx, p), k.lender.lend(ctx, p, k.levelOf(p), k.marks().Low))
		err = errors.Join(err, k.ledger.loans.repay(ctx, p, k.levelOf(p), k.marks()))
	}
	return errors.Join(err, k.leave(ctx, pools, all), k.ledger.keep())
}

// begin waits until no other step or claim is under way, and locks the keeper until the returned function is called.
func (k *Keeper) begin(ctx context.Context) (end func(), err error) {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the blocks of addresses: %w", ctx.Err())
	}
	k.mu.Lock()
	return func() {
		k.mu.Unlock()
		<-k.turn
	}, nil
}

// level claims or releases blocks of a pool until it is between the water marks.
func (k *Keeper) level(ctx context.Context, p PoolCIDR) error {
	marks := k.marks()
	for marks.short(p, k.levelOf(p)) && k.hopeful(p) {
		_, err := k.ownership.holdClaimed(k.ownership.claims.claim(ctx, p))
		if exhausted := (ErrNoBlocks{}); errors.As(err, &exhausted) {
			k.exhausted[p.Key()] = k.config.Now()
			return k.ledger.loans.borrow(ctx, p)
		}
		delete(k.exhausted, p.Key()) // also after a refused request: other nodes may have released blocks meanwhile
		if err != nil {
			return fmt.Errorf("claim a block of %s: %w", p, err)
		}
	}
	for {
		h := marks.surplus(p, k.levelOf(p), k.config.Now())
		if h == nil {
			return nil
		}
		if err := k.ownership.release(ctx, h); err != nil {
			return err
		}
	}
}

// marks returns the current water marks, or the default if they are invalid.
func (k *Keeper) marks() Marks {
	m := k.config.Marks()
	if err := m.Validate(); err != nil {
		k.config.Log.Warn("water marks invalid, using the default", "err", err)
		return DefaultMarks()
	}
	return m
}

// relook is the time after which a pool without blocks is tried again.
const relook = 30 * time.Second

// hopeful reports whether to try to claim a block of the pool. A closed block means that none can be used now.
func (k *Keeper) hopeful(p PoolCIDR) bool {
	if slices.ContainsFunc(k.levelOf(p).blocks, func(h *held) bool { return h.closed }) {
		return false
	}
	since, empty := k.exhausted[p.Key()]
	return !empty || k.wanted[p.Key()] || k.config.Now().Sub(since) >= relook
}

func (k *Keeper) levelOf(p PoolCIDR) level {
	notOf := func(h *held) bool { return !h.isOurs() || !h.isOf(p) }
	return level{
		wanted:   k.wanted[p.Key()],
		borrowed: k.ledger.loans.free(p),
		blocks:   slices.DeleteFunc(k.ledger.sorted(), notOf),
	}
}

// leave releases the empty blocks of deleted pools, returns addresses borrowed from such pools, and continues pending
// releases. If the list of pools is complete, a block of an IPPool does not wait for the grace: no pod gets an address
// of it any more. A network may be unknown for a moment only.
func (k *Keeper) leave(ctx context.Context, pools []PoolCIDR, all bool) error {
	var errs []error
	for _, h := range k.ledger.sorted() {
		switch known := slices.ContainsFunc(pools, h.isOf); {
		case h.taken:
		case h.leaving:
			errs = append(errs, k.ownership.release(ctx, h))
		case !known:
			errs = append(errs, k.abandon(ctx, h, all))
		}
	}
	for _, l := range k.ledger.loans.sorted() {
		if !slices.ContainsFunc(pools, l.isIn) && (l.leaving || !l.taken && k.isAbandoned(&l.held, all)) {
			errs = append(errs, k.ledger.loans.giveBack(ctx, l))
		}
	}
	return errors.Join(errs...)
}

// isAbandoned reports whether a block of an unknown pool has been empty for the grace.
func (k *Keeper) isAbandoned(h *held, all bool) bool {
	grace := k.marks().Grace
	if h.Network == "" && all {
		grace = 0
	}
	return h.usage.empty() && k.config.Now().Sub(h.emptySince) >= grace
}

// abandon releases a block of a deleted pool if it is empty. Addresses that other nodes borrow keep it, offers that no
// node took do not.
func (k *Keeper) abandon(ctx context.Context, h *held, all bool) error {
	if !k.isAbandoned(h, all) {
		return nil
	}
	if err := k.lender.offer(ctx, h, 0); err != nil || h.lent() {
		return err
	}
	return k.ownership.release(ctx, h)
}

// ask is a pod that waits for an address.
type ask struct {
	pools []string // keys
	done  chan<- error
}

// Run steps until ctx ends: at each poke, each interval, and after an error with growing pauses.
func (k *Keeper) Run(ctx context.Context) error {
	pause := retry.Pauses(100*time.Millisecond, 30*time.Second)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var asked []ask
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-k.asks:
			asked = k.allWaiting(a)
		case <-k.poke:
		case <-timer.C:
		}
		next := k.config.Interval
		if err := k.look(ctx, asked...); err != nil {
			k.config.Log.Warn("blocks of addresses not updated, retrying", "err", err)
			next = pause.NextBackOff()
		} else {
			pause.Reset()
		}
		timer.Reset(next)
	}
}

// allWaiting returns the first waiting pod and all that wait with it: one step serves them.
func (k *Keeper) allWaiting(first ask) []ask {
	all := []ask{first}
	for {
		select {
		case a := <-k.asks:
			all = append(all, a)
		default:
			return all
		}
	}
}

// look steps once, and answers waiting pods.
func (k *Keeper) look(ctx context.Context, asked ...ask) error {
	for _, a := range asked {
		k.want(a.pools, true)
	}
	err := k.Step(ctx)
	for _, a := range asked {
		k.want(a.pools, false)
		a.done <- err
	}
	return err
}

func (k *Keeper) want(pools []string, wanted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range pools {
		if delete(k.wanted, key); wanted {
			k.wanted[key] = true
		}
	}
}

// Need claims a block of one of the pools for a pod without a free address, and returns when there is one. Only this
// call makes a pod wait for the API server.
func (k *Keeper) Need(ctx context.Context, pools ...PoolCIDR) error {
	done := make(chan error, 1)
	a := ask{done: done}
	for _, p := range pools {
		a.pools = append(a.pools, p.Key())
	}
	select {
	case k.asks <- a:
	case <-ctx.Done():
		return fmt.Errorf("wait for a block of addresses: %w", ctx.Err())
	}
	select {
	case err := <-done:
		return k.answer(err, pools)
	case <-ctx.Done():
		return fmt.Errorf("wait for a block of addresses: %w", ctx.Err())
	}
}

// Exhausted reports whether a pool had no block left for this node when it last needed one, and this node has no free
// address.
func (k *Keeper) Exhausted(p PoolCIDR) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, exhausted := k.exhausted[p.Key()]
	return exhausted && k.levelOf(p).free() == 0
}

// IsFull reports whether this node has as many blocks of a pool as it may have, and no free address.
func (k *Keeper) IsFull(p PoolCIDR) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.isFullLocked(p)
}

func (k *Keeper) isFullLocked(p PoolCIDR) bool {
	l := k.levelOf(p)
	return len(l.blocks) >= k.marks().MaxBlocks && l.free() == 0
}

// answer returns nil if one of the pools has a free address, whatever failed for other pools.
func (k *Keeper) answer(err error, pools []PoolCIDR) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range pools {
		if k.levelOf(p).free() > 0 {
			return nil
		}
	}
	switch {
	case err != nil:
		return err
	case !slices.ContainsFunc(pools, func(p PoolCIDR) bool { return !k.isFullLocked(p) }):
		return fmt.Errorf("no address is free, and this node has the most blocks that it may have, %d",
			k.marks().MaxBlocks)
	}
	return errors.New("no address is free, and the API server has not answered yet")
}
