package blocks

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// store is where the cluster keeps its blocks. Its errors are those of the API server: IsNotFound, IsAlreadyExists and
// IsConflict say that nothing was written, any other one leaves it open.
type store interface {
	Get(ctx context.Context, name string) (*v1.IPBlock, error)
	// List lists the blocks of a pool. Fresh ones are what the API server has now, others may be a little old.
	List(ctx context.Context, p Pool, fresh bool) ([]v1.IPBlock, error)
	Create(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
	// Update writes b if the object is still of its resource version.
	Update(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
	// Delete deletes the object if it is still of b's UID and resource version.
	Delete(ctx context.Context, b *v1.IPBlock) error
}

// local is who gives out the addresses on this node. Blocks are told apart by network and prefix.
type local interface {
	// Add lets the block's addresses be given out but for those withheld, also of a block that Remove left closed.
	Add(b Block) error
	// Remove gives out no more of the block's addresses. When none is held or cools down it forgets the block and
	// reports true; else the block stays, closed. A single address may cool down: its lender lets it rest.
	Remove(b Block) bool
	Usage(b Block) Usage
	// Withhold takes an address out of what is given out, to be lent: the wanted one if no pod has it, also while it cools
	// down, or any free one if wanted is not valid. It returns an invalid address if there is none.
	Withhold(b Block, wanted netip.Addr) netip.Addr
	// Return lets an address that was withheld be given out again.
	Return(b Block, address netip.Addr)
}

// Config is what a [Keeper] is made of. Node, Owner, Store, Local, Pools, Observed and Foreign are needed.
type Config struct {
	Node  string
	Owner func() string // UID of the Node object; "": it is missing; no block is claimed and no address allocated
	Store store
	Local local
	Pools func() []Pool // in the order in which they are tried
	All   func() bool   // whether a pool that is not among them is gone, and not only unknown yet; default always
	Marks func() Marks  // default [DefaultMarks]

	// Observed are the blocks of this node that a watch sees; false: it has not seen all of them yet.
	Observed func() ([]*v1.IPBlock, bool)
	// Foreign is what a watch shows of another node's block, or nil.
	Foreign func(name string) *v1.IPBlock
	// Taken is called at each step for a block that another node owns while pods of this node use its addresses. It reports whether these
	// pods are isolated durably. Until then the keeper stores the block, so that a restarted keeper calls Taken too. Optional.
	Taken func(b Block, by string) (isolated bool)
	// Known is what an earlier run kept: it is given out from before the API server answers.
	Known []v1.IPBlock
	// Keep makes what is held durable. It is called after each change, and before an address is offered to others: a
	// restart without an API server must not give it out. Nil: nothing is offered.
	Keep func([]v1.IPBlock) error

	Interval time.Duration // between looks, default 5 s
	Now      func() time.Time
	Log      *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Marks == nil {
		c.Marks = DefaultMarks
	}
	if c.All == nil {
		c.All = func() bool { return true }
	}
	if c.Taken == nil {
		c.Taken = func(Block, string) bool { return true }
	}
	if c.Interval == 0 {
		c.Interval = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Keeper sees to it that a node has the blocks that its pods need: some ahead of need, none for long without.
type Keeper struct {
	config Config
	random *rand.Rand
	seed   uint64
	poke   chan struct{}
	asks   chan ask

	mu        sync.Mutex // held during a step: a step is one at a time
	held      map[string]*held
	gone      map[string]bool // UIDs of blocks that were this node's once, and never are again
	loans     map[loanKey]*loan
	scanned   map[string]bool      // by pool: loans of an earlier life were looked for
	owes      bool                 // an earlier life had some
	exhausted map[string]time.Time // by pool, when it was seen without a block for this node
	wanted    map[string]bool      // by pool: a pod waits
	kept      []v1.IPBlock

	began      time.Time
	unanswered map[string]time.Time // by pool, when a write of a loan got no answer
}

// New makes a keeper that has the known blocks.
func New(c Config) (*Keeper, error) {
	c = c.withDefaults()
	if c.Node == "" || c.Owner == nil || c.Store == nil || c.Local == nil || c.Pools == nil || c.Observed == nil || c.Foreign == nil {
		return nil, errors.New("blocks: Node, Owner, Store, Local, Pools, Observed and Foreign are needed")
	}
	h := fnv.New64a()
	h.Write([]byte(c.Node))
	k := &Keeper{
		config: c, seed: h.Sum64(), random: rand.New(rand.NewPCG(h.Sum64(), uint64(c.Now().UnixNano()))),
		poke: make(chan struct{}, 1), asks: make(chan ask),
		held: make(map[string]*held), gone: make(map[string]bool), loans: make(map[loanKey]*loan),
		began: c.Now(), unanswered: make(map[string]time.Time),
		exhausted: make(map[string]time.Time), scanned: make(map[string]bool), wanted: make(map[string]bool),
	}
	k.config.Keep = nil // what is known is kept already
	for _, b := range c.Known {
		if err := errors.Join(k.know(&b)...); err != nil {
			return nil, err
		}
	}
	k.config.Keep, k.kept = c.Keep, k.blocksLocked()
	return k, nil
}

// Poke makes the keeper look soon: an address was given out or came back, or what it was made from changed.
func (k *Keeper) Poke() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// know holds a block of an earlier run, or what it lends this node.
func (k *Keeper) know(b *v1.IPBlock) []error {
	if !k.isOurs(b) {
		k.owes = true
		return k.takeLoans(b)
	}
	if err := k.hold(b); err != nil {
		return []error{err}
	}
	k.held[b.Name].unsure = true
	return nil
}

// Blocks lists what addresses may be given out from, by name: this node's, then those that lend it some.
func (k *Keeper) Blocks() []v1.IPBlock {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.blocksLocked()
}

func (k *Keeper) blocksLocked() []v1.IPBlock {
	var blocks []v1.IPBlock
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		if h := k.held[name]; h.isOurs() {
			b := h.object.DeepCopy()
			b.Spec.Offered = texts(h.Withheld)
			blocks = append(blocks, *b)
		}
	}
	lenders := make(map[string]*v1.IPBlock)
	for _, l := range k.loans {
		if !l.taken {
			lenders[l.object.Name] = l.object
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lenders)) {
		blocks = append(blocks, *k.lender(lenders[name]))
	}
	return blocks
}

// Step looks once: it takes over what the API server says, then claims and releases as the water marks demand.
func (k *Keeper) Step(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	observed, complete := k.config.Observed()
	if !complete {
		return nil
	}
	if k.config.Owner() == "" {
		k.close()
		return nil
	}
	err := k.takeOver(ctx, observed)
	k.count()
	all, pools := k.config.All(), k.config.Pools() // in this order: pools that are all stay all
	for _, p := range pools {
		err = errors.Join(err, k.level(ctx, p), k.lend(ctx, p), k.repay(ctx, p))
	}
	return errors.Join(err, k.leave(ctx, pools, all), k.keep())
}

// close stops allocating addresses: other nodes get the blocks some time after the Node object is gone. When it is back, takeOver opens
// the blocks that still belong to this node.
func (k *Keeper) close() {
	for _, h := range k.held {
		if !h.leaving && !h.closed {
			h.closed = true
			k.config.Local.Remove(h.Block)
		}
	}
	for _, l := range k.loans {
		if !l.leaving && !l.closed {
			l.closed = true
			k.config.Local.Remove(l.Block)
		}
	}
}

// keep makes durable what changed since it was kept last.
func (k *Keeper) keep() error {
	blocks := k.blocksLocked()
	if k.config.Keep == nil || equality.Semantic.DeepEqual(blocks, k.kept) {
		return nil
	}
	if err := k.config.Keep(blocks); err != nil {
		return fmt.Errorf("keep the blocks of addresses: %w", err)
	}
	k.kept = blocks
	return nil
}

func (k *Keeper) count() {
	for _, h := range k.held {
		h.count(k.config.Local.Usage(h.Block), k.config.Now())
	}
	for _, l := range k.loans {
		l.count(k.config.Local.Usage(l.Block), k.config.Now())
	}
}

// level claims or releases blocks of a pool until it stands between the water marks.
func (k *Keeper) level(ctx context.Context, p Pool) error {
	marks := k.marks()
	for marks.short(p, k.levelOf(p)) && k.hopeful(p) {
		err := k.claim(ctx, p)
		if exhausted := (ErrNoBlocks{}); errors.As(err, &exhausted) {
			k.exhausted[p.Key()] = k.config.Now()
			return k.borrow(ctx, p)
		}
		if err != nil {
			return fmt.Errorf("claim a block of %s: %w", p, err)
		}
		delete(k.exhausted, p.Key())
	}
	for {
		h := marks.surplus(p, k.levelOf(p), k.config.Now())
		if h == nil {
			return nil
		}
		if err := k.release(ctx, h); err != nil {
			return err
		}
	}
}

// marks are today's water marks, or the default where today's make no sense.
func (k *Keeper) marks() Marks {
	m := k.config.Marks()
	if err := m.Validate(); err != nil {
		k.config.Log.Warn("water marks are not used", "err", err)
		return DefaultMarks()
	}
	return m
}

// relook is the time after which a pool without blocks is looked at again.
const relook = 30 * time.Second

// hopeful reports whether it makes sense to look for a block of the pool.
func (k *Keeper) hopeful(p Pool) bool {
	since, empty := k.exhausted[p.Key()]
	return !empty || k.wanted[p.Key()] || k.config.Now().Sub(since) >= relook
}

func (k *Keeper) levelOf(p Pool) level {
	l := level{wanted: k.wanted[p.Key()], borrowed: k.borrowedFree(p)}
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		h := k.held[name]
		if h.isOurs() && h.isOf(p) {
			l.blocks = append(l.blocks, h)
		}
	}
	return l
}

// leave releases the empty blocks of pools that are no more, and goes on with what is being released. If pools are all that
// there are, a block of an IPPool does not wait for the grace: nobody gets an address of it any more. A network may be unknown
// for a moment only.
func (k *Keeper) leave(ctx context.Context, pools []Pool, all bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(k.held)) {
		h, marks := k.held[name], k.marks()
		if h.Network == "" && all {
			marks.Grace = 0
		}
		if h.taken {
			continue
		}
		known := slices.ContainsFunc(pools, h.isOf)
		idle := !known && marks.surplus(Pool{Closed: true}, level{blocks: []*held{h}}, k.config.Now()) != nil
		if h.leaving || idle {
			errs = append(errs, k.release(ctx, h))
		}
	}
	return errors.Join(errs...)
}
