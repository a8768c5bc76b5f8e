package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// Blocks claims and releases the address blocks of this node, claims another one for an ADD without a free address, and
// isolates pods that use a block of another node.
type Blocks struct {
	BlocksConfig

	keeper    *blocks.Keeper
	waits     blockWaits
	publisher *blocks.Publisher
	changed   chan struct{}       // holds a token if the blocks of the node changed
	taken     chan recovery.Taken // blocks that another node owns while pods of this node use them
}

// BlocksConfig has the dependencies of the blocks of a node.
type BlocksConfig struct {
	Node       string
	OfPools    bool // pods' main addresses come from the cluster's pools
	Required   bool // pods cannot be served without a block
	Cluster    *nodeview.Cluster
	Networks   *networks.Networks
	State      *statefile.File
	Pods       *podmanager.Manager
	Replayer   *recovery.Replayer
	Quarantine *recovery.Quarantine
	Wiring     *attach.Pods
	Health     *health.Conditions
	Log        *slog.Logger
}

// blocksKey is the key of the node's address blocks in the bucket "cluster" of the state file.
const blocksKey = "blocks"

// NewBlocks returns the blocks of a node. They claim no block before Run. The networks are restored: they have blocks.
func NewBlocks(c BlocksConfig, store *client.BlockStore) (*Blocks, error) {
	bs := &Blocks{BlocksConfig: c, changed: make(chan struct{}, 1), taken: make(chan recovery.Taken, 64)}
	var known []v1.IPBlock
	if _, err := bs.State.Get(statefile.BucketCluster, blocksKey, &known); err != nil {
		bs.Log.Error("which blocks of addresses the node has is left out", "err", err)
	}
	local := bs.givesOut()
	if bs.Required {
		bs.Health.Require(health.Addresses, "the node has no block of the cluster's pools yet")
		bs.Know(nodeview.PodBlocks(bs.Node, known))
	}
	var err error
	bs.keeper, err = blocks.New(blocks.Config{
		Node:  bs.Node,
		Owner: func() string { return bs.Cluster.View().Node.UID },
		Store: store,
		Local: local,
		Watch: bs.Cluster,
		Pools: func() ([]blocks.PoolCIDR, bool) {
			all := bs.Cluster.View().Complete
			return bs.claimedFrom(), all // in this order: a complete list stays complete
		},
		Marks:   func() blocks.Marks { return bs.Cluster.View().Switches.Marks },
		Taken:   bs.onTaken,
		Durable: blocks.Durable{Known: bs.usable(known, local), Keep: bs.keep},
		Log:     bs.Log.With("component", "blocks"),
	})
	bs.waits = blockWaits{keeper: bs.keeper, failure: bs.Cluster.Failure}
	bs.publisher = &blocks.Publisher{
		Store: store, Node: bs.Node, Blocks: bs.keeper.Blocks, Usage: local.Usage, Allocations: bs.allocations,
		Log: bs.Log.With("component", "blocks"),
	}
	return bs, err
}

// Run claims and releases blocks, and isolates pods, until ctx ends.
func (bs *Blocks) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return bs.keeper.Run(ctx) })
	group.Go(func() error { return bs.isolate(ctx) })
	return group.Wait()
}

// Publish writes which pods have which addresses of the blocks, until ctx ends.
func (bs *Blocks) Publish(ctx context.Context) error { return bs.publisher.Run(ctx) }

// Know makes the node ready when it has a block. Later it stays ready, even if all addresses are in use: then each ADD
// fails.
func (bs *Blocks) Know(held []netaddr.Block) {
	if len(blocksOf("", held)) > 0 {
		bs.Health.Set(health.Addresses, true, "")
	}
}

// givesOut allocates addresses from the node's blocks. If the main addresses of pods are from podCIDRs, it ignores
// blocks of pools, which the node may have from an earlier configuration: no pod uses them, so the keeper releases
// them.
type givesOut struct {
	nodeview.Local
	noPools bool
}

// Add makes the addresses of a block available.
func (g givesOut) Add(b netaddr.Block) error {
	if g.noPools && b.Network == "" {
		return nil
	}
	return g.Local.Add(b)
}

func (bs *Blocks) givesOut() givesOut {
	noPools := !bs.OfPools
	return givesOut{noPools: noPools, Local: nodeview.Local{Allocator: func(network string) *ipam.Allocator {
		if network == "" && noPools {
			return nil
		}
		return bs.Networks.Allocator(network)
	}}}
}

// usable returns the blocks of pools and networks that the node still has. The keeper decides on the other blocks when
// it has read the API server.
func (bs *Blocks) usable(known []v1.IPBlock, local givesOut) []v1.IPBlock {
	return slices.DeleteFunc(known, func(b v1.IPBlock) bool {
		prefix, err := blocks.Parse(&b)
		if err == nil {
			err = local.Add(netaddr.Block{Network: string(b.Spec.Network), Prefix: prefix})
		}
		if err != nil {
			bs.Log.Warn("block of an earlier run left out", "block", b.Name, "err", err)
		}
		return err != nil
	})
}

// claimedFrom lists the pools that the node claims blocks of. If its addresses do not come from pools, these are
// closed, but not deleted.
func (bs *Blocks) claimedFrom() []blocks.PoolCIDR {
	view := bs.Cluster.View()
	var list []blocks.PoolCIDR
	for _, p := range view.ClaimedFrom() {
		if p.Network == "" && !bs.OfPools {
			p.Closed = true
			p.Borrowing = false
		}
		if p.Network != "" && bs.Networks.Allocator(p.Network) == nil {
			continue // the node refused the network, or will have it soon
		}
		list = append(list, p)
	}
	return list
}

// keep makes the node's blocks durable, and wakes the follower.
func (bs *Blocks) keep(held []v1.IPBlock) error {
	saved := []eventloop.Saved{{Bucket: statefile.BucketCluster, Key: blocksKey, Value: held}}
	if err := bs.State.Save(context.Background(), saved); err != nil {
		return err
	}
	select {
	case bs.changed <- struct{}{}:
	default: // there is a token
	}
	return nil
}

// allocations lists the addresses of a block in use by pods.
func (bs *Blocks) allocations(b netaddr.Block) []v1.Allocation {
	addresses := bs.Networks.Allocator(b.Network)
	if addresses == nil {
		return nil
	}
	pods := make(map[string]pod.ID)
	for _, at := range bs.Pods.Attachments() {
		pods[at.Key.String()] = at.Pod
	}
	var list []v1.Allocation
	for _, l := range addresses.Leases() {
		if l.State == ipam.Cooling || l.State == ipam.Withheld || l.State == ipam.Occupied ||
			!b.Prefix.Contains(l.Address) {
			continue // no pod of this node has it
		}
		id := pods[attachmentOf(l.Holder)]
		list = append(list, v1.Allocation{
			Address:    v1.IP(l.Address.String()),
			Namespace:  id.Namespace,
			Pod:        id.Name,
			UID:        id.UID,
			Attachment: l.Holder,
		})
	}
	return list
}

// attachmentOf returns the attachment in the name of an address's holder, which ends with the interface unless it is
// the main one.
func attachmentOf(holder string) string {
	parts := strings.SplitN(holder, "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}

// Refillable reports whether an ADD was refused because an address is in no block of this node.
func (bs *Blocks) Refillable(refused error) bool {
	var exhausted ipam.ErrExhausted
	var elsewhere ipam.ErrOutside
	return errors.As(refused, &exhausted) || errors.As(refused, &elsewhere) && elsewhere.Elsewhere
}

// Refill claims the address that an ADD could not get: another block if none is free, or a static address that is in no
// block of this node. It returns nil if the ADD can be retried, else the error of the ADD.
func (bs *Blocks) Refill(ctx context.Context, request *pod.Request, refused error) error {
	ctx, cancel := bs.waits.bounded(ctx)
	defer cancel()
	var exhausted ipam.ErrExhausted
	var elsewhere ipam.ErrOutside
	switch {
	case errors.As(refused, &exhausted):
		return bs.refillPool(ctx, request, exhausted, refused)
	case errors.As(refused, &elsewhere) && elsewhere.Elsewhere:
		return bs.claimStatic(ctx, request, elsewhere, refused)
	}
	return refused
}

// refillPool claims a block of the exhausted pools. It returns nil if there is an address now, else the error of the
// ADD.
func (bs *Blocks) refillPool(
	ctx context.Context, request *pod.Request, exhausted ipam.ErrExhausted, refused error,
) error {
	var wanted []blocks.PoolCIDR
	for _, p := range bs.claimedFrom() {
		for _, tried := range exhausted.Pools() {
			if !p.Closed && nameOfPool(p) == tried {
				wanted = append(wanted, p)
			}
		}
	}
	if len(wanted) == 0 {
		return refused
	}
	began := time.Now()
	err := bs.waits.need(ctx, wanted, exhausted)
	if err == nil {
		return nil
	}
	bs.Log.Warn("no block of addresses for a pod that waits", "pools", exhausted.Pool, "err", err)
	switch {
	case bs.waits.isExhausted(wanted) && exhausted.Cooling == 0:
		return pod.Errorf(pod.CodePoolExhausted,
			"%s: pool exhausted: all blocks of %s are claimed, and this node has no free address%s; "+
				"delete pods, add an IPPool, or give the network larger cidrs", request, sizesOf(wanted),
			exhausted.Skipped())
	case exhausted.NoBlock:
		return pod.Errorf(pod.CodeTryAgain,
			"%s: node %s has no block of addresses of %s, and got none in %s: %w; try again, and see weftctl addresses blocks, "+
				"and the condition api-server of weftctl status", request, bs.Node, sizesOf(wanted),
			time.Since(began).Round(100*time.Millisecond), err)
	}
	return refused
}

// sizesOf lists pools with the number of their blocks and addresses.
func sizesOf(pools []blocks.PoolCIDR) string {
	var texts []string
	for _, p := range pools {
		block := p.Block(0)
		texts = append(texts,
			fmt.Sprintf("%s (%s, %d blocks of %d addresses)", p, p.Prefix, p.Blocks(),
				1<<min(block.Addr().BitLen()-block.Bits(), 62)))
	}
	return strings.Join(texts, " and ")
}

// nameOfPool returns the name of a pool in allocators.
func nameOfPool(p blocks.PoolCIDR) string {
	if p.Network == "" {
		return p.Name
	}
	return desired.PoolOfNetwork(p.Network, netaddr.FamilyOf(p.Prefix.Addr()))
}

// claimStatic claims the static address that a pod requests.
func (bs *Blocks) claimStatic(ctx context.Context, request *pod.Request, e ipam.ErrOutside, refused error) error {
	pools := bs.claimedFrom()
	at := slices.IndexFunc(pools, func(p blocks.PoolCIDR) bool {
		return !p.Closed && nameOfPool(p) == e.Pool && p.Prefix.Contains(e.Address)
	})
	if at < 0 {
		return refused
	}
	err := bs.keeper.Claim(ctx, blocks.Static{
		Pool:      pools[at],
		Address:   e.Address,
		Namespace: request.ID.Namespace,
		Pod:       request.ID.Name,
	})
	held, isHeld := errors.AsType[blocks.ErrHeld](err)
	switch {
	case err == nil:
		return nil
	case isHeld && held.Pod != "" && held.Pod == request.ID.Name && held.Namespace == request.ID.Namespace:
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, which has not released it yet; try again", request, err)
	case isHeld:
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w; request another address of %s, or none", request, err,
			pools[at])
	}
	return pod.Errorf(pod.CodeTryAgain, "%s: %w; try again", request, err)
}

// Held returns the blocks that the node allocates addresses from.
func (bs *Blocks) Held() []netaddr.Block {
	held := nodeview.PodBlocks(bs.Node, bs.keeper.Blocks())
	return slices.DeleteFunc(held, func(b netaddr.Block) bool { return b.Network == "" && !bs.OfPools })
}

// blocksOf returns the prefixes of a network's blocks.
func blocksOf(network string, held []netaddr.Block) []netip.Prefix {
	var list []netip.Prefix
	for _, b := range held {
		if b.Network == network {
			list = append(list, b.Prefix)
		}
	}
	return list
}

// onTaken queues a block of another node for [Blocks.isolate]. It reports whether the pods that use the block are
// isolated already, durably. The keeper calls it at each step until then.
func (bs *Blocks) onTaken(b netaddr.Block, by string) (isolated bool) {
	t := recovery.Taken{Network: b.Network, Prefix: b.Prefix, By: by}
	if len(bs.Replayer.Exposed(t)) == 0 && bs.Quarantine.IsDurable() &&
		!bs.Wiring.WithholdsOthers(bs.Quarantine.Keys()) {
		return true
	}
	select {
	case bs.taken <- t:
	default:
	}
	return false
}

// isolate disconnects pods with addresses that another node owns, until ctx ends. It starts after the first resync: the
// event loop holds other events back until then.
func (bs *Blocks) isolate(ctx context.Context) error {
	if err := bs.Health.Await(ctx, health.Started); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case t := <-bs.taken:
			bs.Replayer.Isolate(ctx, t)
			select {
			case bs.changed <- struct{}{}: // announces the change
			default:
			}
		}
	}
}

// CanGrow reports whether the node can claim another block of a pool.
func (bs *Blocks) CanGrow(s ipam.Stats) bool {
	return s.Blocks && !slices.ContainsFunc(bs.claimedFrom(), func(p blocks.PoolCIDR) bool {
		return nameOfPool(p) == s.Name && p.Prefix == s.Prefix && bs.keeper.Exhausted(p)
	})
}
