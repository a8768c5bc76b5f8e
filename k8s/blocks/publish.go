package blocks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// statuses is where the status of blocks is written.
type statuses interface {
	Get(ctx context.Context, name string) (*v1.IPBlock, error)
	// UpdateStatus writes b's status if the object is still of b's resource version.
	UpdateStatus(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
}

// Publisher tells the cluster who has which address: what the node knows goes to the API server, later and never the
// other way. Changes that come faster than Every are one write a block.
type Publisher struct {
	Store  statuses
	Blocks func() []v1.IPBlock // of this node: those of [Keeper.Blocks]
	// Allocations are those of a block, and Usage its counts. They are complete: nothing is published before the node has
	// restored what it knew.
	Allocations func(b Block) []v1.Allocation
	Usage       func(b Block) Usage
	Node        string
	Every       time.Duration // default 1 s
	Log         *slog.Logger

	written map[string]v1.IPBlockStatus // by the UID of the block
}

// Run publishes until ctx ends: first everything once, then what changed. What fails is tried again, less and less
// often.
func (p *Publisher) Run(ctx context.Context) error {
	every := p.Every
	if every == 0 {
		every = time.Second
	}
	pause := every
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		if err := p.Publish(ctx); err != nil {
			pause = min(2*pause, 30*time.Second)
			if p.Log != nil {
				p.Log.Debug("addresses not published", "err", err)
			}
		} else {
			pause = every
		}
		timer.Reset(pause)
	}
}

// Publish writes the status of each block whose addresses are not those that were written last.
func (p *Publisher) Publish(ctx context.Context) error {
	var errs []error
	next := make(map[string]v1.IPBlockStatus)
	for _, b := range p.Blocks() {
		prefix, err := Parse(&b)
		if err != nil || string(b.Spec.Node) != p.Node {
			continue // a block of which this node only borrows
		}
		wanted := p.status(Block{Pool: b.Spec.Pool, Network: string(b.Spec.Network), Prefix: prefix}, b.Status)
		if last, known := p.written[string(b.UID)]; known && equality.Semantic.DeepEqual(last, wanted) {
			next[string(b.UID)] = last
			continue
		}
		if err := p.write(ctx, &b, wanted); err != nil {
			errs = append(errs, err)
			continue
		}
		next[string(b.UID)] = wanted
	}
	p.written = next
	return errors.Join(errs...)
}

func (p *Publisher) status(b Block, there v1.IPBlockStatus) v1.IPBlockStatus {
	usage, byAddress := p.Usage(b), make(map[netip.Addr]v1.Allocation)
	for _, a := range p.Allocations(b) {
		if address, err := netip.ParseAddr(string(a.Address)); err == nil {
			byAddress[address] = a
		}
	}
	status := v1.IPBlockStatus{
		Used: int32(len(byAddress)), Cooling: int32(usage.Cooling), Free: int32(usage.Free), Conditions: there.Conditions,
	}
	for _, address := range slices.SortedFunc(maps.Keys(byAddress), netip.Addr.Compare) {
		status.Allocations = append(status.Allocations, byAddress[address])
	}
	return status
}

func (p *Publisher) write(ctx context.Context, b *v1.IPBlock, status v1.IPBlockStatus) error {
	there, err := p.Store.Get(ctx, b.Name)
	if err == nil && there.UID == b.UID && string(there.Spec.Node) == p.Node {
		there.Status = status
		_, err = p.Store.UpdateStatus(ctx, there)
	}
	if apierrors.IsNotFound(err) {
		return nil // it is no more
	}
	if err != nil {
		return fmt.Errorf("publish addresses of block %s: %w", b.Name, err)
	}
	return nil
}
