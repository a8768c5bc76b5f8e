package blocks

import (
	"cmp"
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

	"github.com/weftnet/weft/internal/netaddr"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// statuses is access to the status of blocks.
type statuses interface {
	Get(ctx context.Context, name string) (*v1.IPBlock, error)
	// UpdateStatus writes b's status if the object still has b's resource version.
	UpdateStatus(ctx context.Context, b *v1.IPBlock) (*v1.IPBlock, error)
}

// Publisher writes the allocations of the node to the status of its blocks, at most one write of a block in Every.
type Publisher struct {
	Store  statuses
	Blocks func() []v1.IPBlock // of this node, as [Keeper.Blocks] returns them
	// Allocations returns the allocations of a block, and Usage its counts. They are complete: run it after the node
	// has restored its state.
	Allocations func(b netaddr.Block) []v1.Allocation
	Usage       func(b netaddr.Block) Usage
	Node        string
	Every       time.Duration // default 1 s
	Log         *slog.Logger

	written map[string]v1.IPBlockStatus // by the UID of the block
}

// Run publishes until ctx ends: first all blocks, then changes. It retries with growing pauses.
func (p *Publisher) Run(ctx context.Context) error {
	every := cmp.Or(p.Every, time.Second)
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

// Publish writes the status of each block with changed allocations.
func (p *Publisher) Publish(ctx context.Context) error {
	var errs []error
	next := make(map[string]v1.IPBlockStatus)
	for _, b := range p.Blocks() {
		prefix, err := Parse(&b)
		if err != nil || string(b.Spec.Node) != p.Node {
			continue // this node only borrows from it
		}
		wanted := p.status(netaddr.Block{Network: string(b.Spec.Network), Prefix: prefix}, b.Status)
		if last, known := p.written[string(b.UID)]; known && equality.Semantic.DeepEqual(last, wanted) {
			next[string(b.UID)] = last
			continue
		}
		err = p.write(ctx, &b, wanted)
		errs = append(errs, err)
		if err == nil {
			next[string(b.UID)] = wanted
		}
	}
	p.written = next
	return errors.Join(errs...)
}

func (p *Publisher) status(b netaddr.Block, there v1.IPBlockStatus) v1.IPBlockStatus {
	usage := p.Usage(b)
	byAddress := make(map[netip.Addr]v1.Allocation)
	for _, a := range p.Allocations(b) {
		if address, err := netip.ParseAddr(string(a.Address)); err == nil {
			byAddress[address] = a
		}
	}
	status := v1.IPBlockStatus{
		Used:       int32(len(byAddress)),
		Cooling:    int32(usage.Cooling),
		Free:       int32(usage.Free),
		Conditions: there.Conditions,
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
		return nil // the block is deleted
	}
	if err != nil {
		return fmt.Errorf("publish addresses of block %s: %w", b.Name, err)
	}
	return nil
}
