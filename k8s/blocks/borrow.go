package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// spare is how many borrowed addresses a node keeps ahead of need. They are others' blocks: few.
const spare = 2

// loan is an address that another node lends this one.
type loan struct {
	held    // its object is the lender's block
	address netip.Addr

	requested time.Time    // when a pod waited for it; zero: it was borrowed ahead of need
	around    netip.Prefix // the lender's block
}

// loanKey tells loans apart: networks may have the same addresses.
type loanKey struct {
	network string
	address netip.Addr
}

func (l *loan) key() loanKey { return loanKey{l.Network, l.address} }

// borrow makes addresses on offer this node's to use, when there is no block left for it. Without borrowing that is an
// [ErrNoBlocks].
func (k *Keeper) borrow(ctx context.Context, p Pool) error {
	if !p.Borrowing {
		return ErrNoBlocks{Pool: p}
	}
	list, err := k.config.Store.List(ctx, p, true)
	if err != nil {
		return fmt.Errorf("list blocks to borrow from: %w", err)
	}
	k.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for i := range list {
		if err := errors.Join(k.takeLoans(&list[i])...); err != nil {
			return err
		}
		for more := &list[i]; more != nil && k.borrowedFree(p) < spare; {
			if more, err = k.borrowFrom(ctx, more); err != nil {
				return err
			}
		}
	}
	if k.borrowedFree(p) == 0 {
		return ErrNoBlocks{Pool: p}
	}
	return nil
}

// borrowFrom borrows one address of another node's block, and returns the block as it is then; nil: none is on offer, or
// another node was faster.
func (k *Keeper) borrowFrom(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error) {
	if string(b.Spec.Node) == k.config.Node {
		return nil, nil
	}
	free := slices.IndexFunc(addresses(b.Spec.Offered), func(a netip.Addr) bool { return !isBorrowed(b, a) && requestOf(b, a) == nil })
	if free < 0 {
		return nil, nil
	}
	b = b.DeepCopy()
	b.Spec.Borrowed = append(b.Spec.Borrowed, v1.Loan{Address: b.Spec.Offered[free], Node: v1.NodeName(k.config.Node)})
	updated, err := k.config.Store.Update(ctx, b)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("borrow from block %s: %w", b.Name, err)
	}
	return updated, errors.Join(k.takeLoans(updated)...)
}

// takeLoans uses what the block lends this node.
func (k *Keeper) takeLoans(b *v1.IPBlock) []error {
	var errs []error
	for _, l := range b.Spec.Borrowed {
		address, err := netip.ParseAddr(string(l.Address))
		if err != nil || string(l.Node) != k.config.Node {
			continue
		}
		if known := k.loans[loanKey{string(b.Spec.Network), address}]; known != nil {
			known.object = b
			continue
		}
		errs = append(errs, k.takeLoan(b, address))
	}
	return errs
}

func (k *Keeper) takeLoan(b *v1.IPBlock, address netip.Addr) error {
	block := Block{Pool: b.Spec.Pool, Network: string(b.Spec.Network), Prefix: netip.PrefixFrom(address, address.BitLen())}
	around, err := Parse(b)
	if err != nil {
		return err
	}
	taken := &loan{held: held{Block: block, name: b.Name, object: b}, address: address, around: around}
	k.loans[taken.key()] = taken
	err = k.keep()
	if err == nil {
		err = k.config.Local.Add(block)
	}
	if err != nil {
		delete(k.loans, taken.key())
		return fmt.Errorf("use address %s of block %s: %w", address, b.Name, err)
	}
	taken.count(k.config.Local.Usage(block), k.config.Now())
	return nil
}

// repay gives borrowed addresses back that no pod has: at once if the pool has free addresses without them, or another node
// requests them, else after the grace.
func (k *Keeper) repay(ctx context.Context, p Pool) error {
	var errs []error
	if k.mayOwe(p) {
		errs = append(errs, k.scan(ctx, p))
	}
	for _, loan := range k.loansOf(p) {
		if k.isDue(p, loan) {
			errs = append(errs, k.giveBack(ctx, loan))
		}
	}
	return errors.Join(errs...)
}

// isDue reports whether a borrowed address is to be given back. The pod that it was requested for has some time to start. An
// address that cools down rests with its lender, unless other nodes without need for this very one may borrow it.
func (k *Keeper) isDue(p Pool, loan *loan) bool {
	now, marks, l := k.config.Now(), k.marks(), k.levelOf(p)
	requested := requestOf(k.config.Foreign(loan.name), loan.address)
	switch {
	case loan.leaving:
		return true
	case loan.closed || loan.taken:
		return false // takeOver decides
	case loan.usage.Held > 0 || now.Sub(loan.requested) < requestTime:
		return false
	case !p.Borrowing || requested != nil && string(requested.Node) != k.config.Node:
		return true
	}
	rested := now.Sub(loan.emptySince) >= marks.Grace
	enough := l.free()-l.borrowed >= marks.Low && len(l.blocks) > 0
	return loan.usage.empty() && (rested || enough)
}

// mayOwe reports whether it is time to look for loans to this node that it does not know of: those of an earlier life, which
// may have lost its state, and those of writes without an answer.
func (k *Keeper) mayOwe(p Pool) bool {
	now := k.config.Now()
	if unanswered, is := k.unanswered[p.Key()]; is {
		return now.Sub(unanswered) >= requestTime
	}
	return !k.scanned[p.Key()] && (p.Borrowing || k.owes || len(k.config.Known) == 0 && now.Sub(k.began) >= relook)
}

// scan finds what is borrowed under this node's name that it does not know of.
func (k *Keeper) scan(ctx context.Context, p Pool) error {
	list, err := k.config.Store.List(ctx, p, true)
	if err != nil {
		return fmt.Errorf("list blocks to find loans: %w", err)
	}
	k.scanned[p.Key()] = true
	delete(k.unanswered, p.Key())
	var errs []error
	for i := range list {
		errs = append(errs, k.takeLoans(&list[i])...)
	}
	return errors.Join(errs...)
}

func (k *Keeper) giveBack(ctx context.Context, l *loan) error {
	if !l.leaving && !k.config.Local.Remove(l.Block) {
		return k.config.Local.Add(l.Block)
	}
	l.leaving = true
	if err := k.keep(); err != nil {
		return err // before the lender can have it: a restart without an API server must not give it out
	}
	b, err := k.config.Store.Get(ctx, l.name)
	if err == nil {
		b = b.DeepCopy()
		b.Spec.Borrowed = slices.DeleteFunc(b.Spec.Borrowed, func(o v1.Loan) bool {
			return string(o.Address) == l.address.String() && string(o.Node) == k.config.Node
		})
		_, err = k.config.Store.Update(ctx, b)
	}
	switch {
	case err == nil, apierrors.IsNotFound(err):
		delete(k.loans, l.key())
		return nil
	case apierrors.IsConflict(err):
		return nil // the next look tries again
	}
	return fmt.Errorf("give back %s of block %s: %w", l.address, l.name, err)
}

func (k *Keeper) loansOf(p Pool) []*loan {
	return slices.DeleteFunc(k.sortedLoans(), func(l *loan) bool {
		return l.Pool != p.Name || l.Network != p.Network || !p.Prefix.Contains(l.address)
	})
}

func (k *Keeper) sortedLoans() []*loan {
	return slices.SortedFunc(maps.Values(k.loans), func(x, y *loan) int {
		return cmp.Or(cmp.Compare(x.Network, y.Network), x.address.Compare(y.address))
	})
}

// lender is a block of another node with what of it this node uses, and no more: not what it is giving back.
func (k *Keeper) lender(b *v1.IPBlock) *v1.IPBlock {
	b = b.DeepCopy()
	b.Spec.Borrowed = slices.DeleteFunc(b.Spec.Borrowed, func(o v1.Loan) bool {
		address, err := netip.ParseAddr(string(o.Address))
		l := k.loans[loanKey{string(b.Spec.Network), address}]
		return err == nil && string(o.Node) == k.config.Node && (l == nil || !l.isOurs())
	})
	return b
}

// borrowedFree counts the borrowed addresses of a pool that could be given out.
func (k *Keeper) borrowedFree(p Pool) int {
	free := 0
	for _, l := range k.loansOf(p) {
		if l.isOurs() {
			free += k.config.Local.Usage(l.Block).Free
		}
	}
	return free
}
