package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// spare is the number of addresses that a node borrows ahead of need.
const spare = 2

// loan is an address that another node lends this one.
type loan struct {
	held    // its object is the lender's block
	address netip.Addr

	requested time.Time    // when a pod waited for it; zero: it was borrowed ahead of need
	around    netip.Prefix // the lender's block
}

// addressKey identifies an address: networks may have the same ones.
type addressKey struct {
	network string
	address netip.Addr
}

func (l *loan) key() addressKey { return addressKey{l.Network, l.address} }

// isIn reports whether a pool has the address.
func (l *loan) isIn(p PoolCIDR) bool {
	return l.pool == p.Name && l.Network == p.Network && p.Prefix.Contains(l.address)
}

// loans are the addresses that other nodes lend this one.
type loans struct {
	config *Config
	random *rand.Rand
	keep   func() error // stores blocks and loans
	all    map[addressKey]*loan

	began      time.Time
	scanned    map[string]bool      // by pool: loans of an earlier run were searched
	owes       bool                 // an earlier run had loans
	unanswered map[string]time.Time // by pool, when a write of a loan got no answer
}

// borrow borrows addresses on offer if no block is left for this node. It fails with [ErrNoBlocks] if borrowing is
// disabled or no address is on offer.
func (ls *loans) borrow(ctx context.Context, p PoolCIDR) error {
	if !p.Borrowing {
		return ErrNoBlocks{Pool: p}
	}
	list, err := ls.config.Store.List(ctx, p, true)
	if err != nil {
		return fmt.Errorf("list blocks to borrow from: %w", err)
	}
	ls.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for i := range list {
		if err := ls.take(&list[i]); err != nil {
			return err
		}
		for more := &list[i]; more != nil && ls.free(p) < spare; {
			if more, err = ls.borrowFrom(ctx, more); err != nil {
				return err
			}
		}
	}
	if ls.free(p) == 0 {
		return ErrNoBlocks{Pool: p}
	}
	return nil
}

// borrowFrom borrows an address of another node's block, and returns the updated block; nil: there is no offer, or
// another node was faster.
func (ls *loans) borrowFrom(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	offered := v1.Addresses(b.Spec.Offered)
	free := slices.IndexFunc(offered, func(a netip.Addr) bool {
		return loanOf(b, a) == nil && requestOf(b, a) == nil
	})
	if string(b.Spec.Node) == ls.config.Node || free < 0 {
		return nil, nil
	}
	b = b.DeepCopy()
	b.Spec.Borrowed = append(b.Spec.Borrowed, v1.Loan{
		Address: v1.IP(offered[free].String()), Node: v1.NodeName(ls.config.Node),
	})
	updated, err := ls.config.Store.Update(ctx, b)
	switch {
	case isOvertaken(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("borrow from block %s: %w", b.Name, err)
	}
	return updated, ls.take(updated)
}

// take uses the addresses that a block lends this node.
func (ls *loans) take(b *v1.IPBlock) error {
	var errs []error
	for _, l := range b.Spec.Borrowed {
		address, err := netip.ParseAddr(string(l.Address))
		if err != nil || string(l.Node) != ls.config.Node {
			continue
		}
		if known := ls.all[addressKey{string(b.Spec.Network), address}]; known != nil {
			known.object = b
			continue
		}
		errs = append(errs, ls.takeOne(b, address))
	}
	return errors.Join(errs...)
}

func (ls *loans) takeOne(b *v1.IPBlock, address netip.Addr) error {
	around, err := Parse(b)
	if err != nil {
		return err
	}
	taken := &loan{
		held: held{
			Block:  netaddr.Block{Network: string(b.Spec.Network), Prefix: netaddr.Single(address)},
			pool:   b.Spec.Pool,
			name:   b.Name,
			object: b,
		},
		address: address,
		around:  around,
	}
	ls.all[taken.key()] = taken
	if err = ls.keep(); err == nil {
		err = ls.config.Local.Add(taken.Block)
		taken.closed = errors.Is(err, ErrNoNetwork) // Step opens it with the network, or returns it after the grace
	}
	if err != nil && !taken.closed {
		delete(ls.all, taken.key())
		return fmt.Errorf("use address %s of block %s: %w", address, b.Name, err)
	}
	taken.count(ls.config.Local.Usage(taken.Block), ls.config.Now())
	return nil
}

// repay returns borrowed addresses without a pod: at once if the pool has free addresses without them, or another node
// requests them, else after the grace. Own is the level of the node's blocks.
func (ls *loans) repay(ctx context.Context, p PoolCIDR, own level, marks Marks) error {
	var errs []error
	if ls.mayOwe(p) {
		errs = append(errs, ls.scan(ctx, p))
	}
	for _, loan := range ls.of(p) {
		requested := requestOf(ls.config.Watch.ForeignBlock(loan.name), loan.address)
		isRequested := requested != nil && string(requested.Node) != ls.config.Node && ls.mayPass(loan, requested)
		claimed := isRequested || !p.Borrowing && loan.usage.Cooling == 0
		enough := own.free()-own.borrowed >= marks.Low && len(own.blocks) > 0
		if ls.isDue(loan, claimed, enough, marks.Grace) {
			errs = append(errs, ls.giveBack(ctx, loan))
		}
	}
	return errors.Join(errs...)
}

// mayPass reports whether a borrowed address may go to the pod of a request at once: not while it cools down and the
// loan is not for a pod of the same namespace. Others still send to its last pod.
func (ls *loans) mayPass(l *loan, r *v1.AddressRequest) bool {
	if l.usage.Cooling == 0 {
		return true
	}
	own := loanOf(ls.config.Watch.ForeignBlock(l.name), l.address)
	return own != nil && own.Namespace != "" && own.Namespace == r.Namespace
}

// isDue reports whether a borrowed address is returned. The pod that it was requested for has some time to start; if
// the address cools down, that pod has ended. A cooling address rests with its lender, unless the lender must have it.
func (ls *loans) isDue(loan *loan, claimed, enough bool, grace time.Duration) bool {
	now := ls.config.Now()
	switch {
	case loan.leaving:
		return true
	case loan.closed || loan.taken:
		return false // takeOver decides
	case loan.usage.Held > 0, loan.usage.Cooling == 0 && now.Sub(loan.requested) < requestTime:
		return false
	}
	return claimed || loan.usage.empty() && (enough || now.Sub(loan.emptySince) >= grace)
}

// mayOwe reports whether to search unknown loans to this node: loans of an earlier run, because its state may be lost,
// and loans by writes without an answer.
func (ls *loans) mayOwe(p PoolCIDR) bool {
	now := ls.config.Now()
	if unanswered, is := ls.unanswered[p.Key()]; is {
		return now.Sub(unanswered) >= requestTime
	}
	return !ls.scanned[p.Key()] && (p.Borrowing || ls.owes || len(ls.config.Known) == 0 && now.Sub(ls.began) >= relook)
}

// scan takes all loans of a pool to this node.
func (ls *loans) scan(ctx context.Context, p PoolCIDR) error {
	list, err := ls.config.Store.List(ctx, p, true)
	if err != nil {
		return fmt.Errorf("list blocks to find loans: %w", err)
	}
	ls.scanned[p.Key()] = true
	delete(ls.unanswered, p.Key())
	var errs []error
	for i := range list {
		errs = append(errs, ls.take(&list[i]))
	}
	return errors.Join(errs...)
}

func (ls *loans) giveBack(ctx context.Context, l *loan) error {
	if !l.leaving && !ls.config.Local.Remove(l.Block) {
		return ls.config.Local.Add(l.Block)
	}
	l.leaving = true
	if err := ls.keep(); err != nil {
		return err // the lender must not get it: a restart without an API server would allocate it here
	}
	b, err := ls.config.Store.Get(ctx, l.name)
	if err == nil {
		b = b.DeepCopy()
		b.Spec.Borrowed = slices.DeleteFunc(b.Spec.Borrowed, func(o v1.Loan) bool {
			return string(o.Address) == l.address.String() && string(o.Node) == ls.config.Node
		})
		_, err = ls.config.Store.Update(ctx, b)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		delete(ls.all, l.key())
		return nil
	case apierrors.IsConflict(err):
		return nil // the next step tries again
	}
	return fmt.Errorf("return %s of block %s: %w", l.address, l.name, err)
}

// of lists the loans of a pool.
func (ls *loans) of(p PoolCIDR) []*loan {
	return slices.DeleteFunc(ls.sorted(), func(l *loan) bool { return !l.isIn(p) })
}

func (ls *loans) sorted() []*loan {
	return slices.SortedFunc(maps.Values(ls.all), func(x, y *loan) int {
		return cmp.Or(cmp.Compare(x.Network, y.Network), x.address.Compare(y.address))
	})
}

// used returns a block of another node without the loans to this node that are returned or unknown.
func (ls *loans) used(b *v1.IPBlock) *v1.IPBlock {
	b = b.DeepCopy()
	b.Spec.Borrowed = slices.DeleteFunc(b.Spec.Borrowed, func(o v1.Loan) bool {
		address, err := netip.ParseAddr(string(o.Address))
		l := ls.all[addressKey{string(b.Spec.Network), address}]
		return err == nil && string(o.Node) == ls.config.Node && (l == nil || !l.isOurs())
	})
	return b
}

// free counts the borrowed addresses of a pool that can be allocated.
func (ls *loans) free(p PoolCIDR) int {
	free := 0
	for _, l := range ls.of(p) {
		if l.isOurs() {
			free += ls.config.Local.Usage(l.Block).Free
		}
	}
	return free
}

// isLent reports whether a block lends this node an address. Without its offer the address belongs to the block's node
// again.
func (ls *loans) isLent(b *v1.IPBlock, l *loan) bool {
	if b == nil || b.DeletionTimestamp != nil || !slices.Contains(v1.Addresses(b.Spec.Offered), l.address) {
		return false
	}
	is := loanOf(b, l.address)
	return is != nil && string(is.Node) == ls.config.Node
}
