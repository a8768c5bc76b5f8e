package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// assembleBlocks makes who claims blocks of addresses for the node, and who tells which pod has which. It comes after the
// networks are restored, of which it has blocks.
func (a *Agent) assembleBlocks() error {
	if a.cluster == nil {
		return nil
	}
	var known []v1.IPBlock
	if _, err := a.state.Get(statefile.BucketCluster, blocksKey, &known); err != nil {
		a.log.Error("which blocks of addresses the node has is left out", "err", err)
	}
	local := a.givesOut()
	store := a.client.BlockStore()
	if a.config.Kubernetes.Addresses == config.OfPools && len(a.config.Pools) == 0 {
		a.health.Require(health.Addresses, "the node has no block of the cluster's pools yet")
		a.knowAddresses(nodeview.PodBlocks(a.config.Kubernetes.Node, known))
	}
	var err error
	a.keeper, err = blocks.New(blocks.Config{
		Node:     a.config.Kubernetes.Node,
		Owner:    func() string { return a.cluster.View().Node.UID },
		Store:    store,
		Local:    local,
		Pools:    func() []blocks.Pool { return a.claimedFrom() },
		All:      func() bool { return a.cluster.View().Complete },
		Marks:    func() blocks.Marks { return a.cluster.View().Switches.Marks },
		Observed: a.cluster.Blocks,
		Foreign:  a.cluster.ForeignBlock,
		Taken:    a.blockTaken,
		Known:    a.usable(known, local),
		Keep:     a.keepBlocks,
		Log:      a.log.With("room", "blocks"),
	})
	a.publisher = &blocks.Publisher{
		Store: store, Node: a.config.Kubernetes.Node, Blocks: a.keeper.Blocks, Usage: local.Usage, Allocations: a.allocations,
		Log: a.log.With("room", "blocks"),
	}
	return err
}

// knowAddresses has the node serve pods once it has addresses for them. That all may be in use later is the pods' error.
func (a *Agent) knowAddresses(held []pod.Block) {
	if len(blocksOf("", held)) > 0 {
		a.health.Set(health.Addresses, true, "")
	}
}

// givesOut is who gives out the addresses of the node's blocks. Where pods' main addresses are of podCIDRs, blocks of pools
// that the node had before are of no use: no pod has an address of them, so the keeper releases them.
type givesOut struct {
	nodeview.Local
	noPools bool
}

// Add lets the block's addresses be given out.
func (g givesOut) Add(b blocks.Block) error {
	if g.noPools && b.Network == "" {
		return nil
	}
	return g.Local.Add(b)
}

func (a *Agent) givesOut() givesOut {
	noPools := a.config.Kubernetes.Addresses != config.OfPools
	return givesOut{noPools: noPools, Local: nodeview.Local{Allocator: func(network string) *ipam.Allocator {
		if network == "" && noPools {
			return nil
		}
		return a.network.Networks.Allocator(network)
	}}}
}

// usable are the blocks of pools and networks that the node has still: others are claimed anew, or released, by what the
// API server says of them.
func (a *Agent) usable(known []v1.IPBlock, local givesOut) []v1.IPBlock {
	return slices.DeleteFunc(known, func(b v1.IPBlock) bool {
		prefix, err := blocks.Parse(&b)
		if err == nil {
			err = local.Add(blocks.Block{Pool: b.Spec.Pool, Network: string(b.Spec.Network), Prefix: prefix})
		}
		if err != nil {
			a.log.Warn("block of an earlier run left out", "block", b.Name, "err", err)
		}
		return err != nil
	})
}

// claimedFrom lists what the node claims blocks of. Where its addresses do not come from pools these are closed: they are not
// gone.
func (a *Agent) claimedFrom() []blocks.Pool {
	view := a.cluster.View()
	var list []blocks.Pool
	for _, p := range view.ClaimedFrom() {
		if p.Network == "" && a.config.Kubernetes.Addresses != config.OfPools {
			p.Closed, p.Borrowing = true, false
		}
		if p.Network != "" && a.network.Networks.Allocator(p.Network) == nil {
			continue // it was refused here, or comes soon
		}
		list = append(list, p)
	}
	return list
}

// keepBlocks makes durable which blocks the node has, and has the networks follow.
func (a *Agent) keepBlocks(held []v1.IPBlock) error {
	saved := []eventloop.Saved{{Bucket: statefile.BucketCluster, Key: blocksKey, Value: held}}
	if err := a.state.Save(context.Background(), saved); err != nil {
		return err
	}
	select {
	case a.blocksChanged <- struct{}{}:
	default: // who follows has not looked yet
	}
	return nil
}

// allocations are the addresses of a block that pods have.
func (a *Agent) allocations(b blocks.Block) []v1.Allocation {
	addresses := a.network.Networks.Allocator(b.Network)
	if addresses == nil {
		return nil
	}
	pods := make(map[string]pod.ID)
	for _, at := range a.pods.Attachments() {
		pods[at.Key.String()] = at.Pod
	}
	var list []v1.Allocation
	for _, l := range addresses.Leases() {
		if l.State == ipam.Cooling || l.State == ipam.Withheld || !b.Prefix.Contains(l.Address) {
			continue // no pod of this node has it
		}
		id := pods[attachmentOf(l.Holder)]
		list = append(list, v1.Allocation{
			Address: v1.IP(l.Address.String()), Namespace: id.Namespace, Pod: id.Name, UID: id.UID, Attachment: l.Holder,
		})
	}
	return list
}

// attachmentOf is the attachment in the name of who holds an address: behind it that has the interface, if it is not the main
// one.
func attachmentOf(holder string) string {
	parts := strings.SplitN(holder, "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}

// refillPool claims a block of the pools in which a pod found no address. It returns nil if there is an address now, else
// refused.
func (a *Agent) refillPool(ctx context.Context, ev *pod.AddPod, exhausted ipam.ErrExhausted, refused error) error {
	var wanted []blocks.Pool
	for _, p := range a.claimedFrom() {
		for _, tried := range exhausted.Pools() {
			if !p.Closed && nameOfPool(p) == tried {
				wanted = append(wanted, p)
			}
		}
	}
	if len(wanted) == 0 {
		return refused
	}
	err := a.keeper.Need(ctx, wanted...)
	if err == nil {
		return nil
	}
	a.log.Warn("no block of addresses for a pod that waits", "pools", exhausted.Pool, "err", err)
	if left := func(p blocks.Pool) bool { return !a.keeper.Exhausted(p) }; exhausted.Cooling > 0 || slices.ContainsFunc(wanted, left) {
		return refused
	}
	return pod.Errorf(pod.CodePoolExhausted, "%s: pool exhausted: all blocks of %s are claimed, and this node has no free address; "+
		"delete pods, add an IPPool, or give the network larger cidrs", ev, sizesOf(wanted))
}

// sizesOf lists pools with the number of their blocks and addresses.
func sizesOf(pools []blocks.Pool) string {
	var texts []string
	for _, p := range pools {
		block := p.Block(0)
		texts = append(texts, fmt.Sprintf("%s (%s, %d blocks of %d addresses)", p, p.Prefix, p.Blocks(), 1<<min(block.Addr().BitLen()-block.Bits(), 62)))
	}
	return strings.Join(texts, " and ")
}

// nameOfPool is what allocators call what blocks are claimed of.
func nameOfPool(p blocks.Pool) string {
	if p.Network == "" {
		return p.Name
	}
	return desired.PoolOfNetwork(p.Network, wire.FamilyOf(p.Prefix.Addr()))
}

// heldBlocks are the blocks that the node gives out addresses of.
func (a *Agent) heldBlocks() []pod.Block {
	held := nodeview.PodBlocks(a.config.Kubernetes.Node, a.keeper.Blocks())
	return slices.DeleteFunc(held, func(b pod.Block) bool { return b.Network == "" && a.config.Kubernetes.Addresses != config.OfPools })
}

// blocksOf are the blocks of a network that this node has, as the others are told.
func blocksOf(network string, held []pod.Block) []netip.Prefix {
	var list []netip.Prefix
	for _, b := range held {
		if b.Network == network {
			list = append(list, b.Prefix)
		}
	}
	return list
}

// refill gets the node the addresses that an ADD lacked: a block where none is free, or the static address that is in no block
// of this node. It returns nil if the ADD is to be tried again, else the error of the ADD.
func (a *Agent) refill(ctx context.Context, ev *pod.AddPod, refused error) error {
	var exhausted ipam.ErrExhausted
	var elsewhere ipam.ErrOutside
	switch {
	case a.keeper == nil:
	case errors.As(refused, &exhausted):
		return a.refillPool(ctx, ev, exhausted, refused)
	case errors.As(refused, &elsewhere) && elsewhere.Elsewhere:
		return a.claimStatic(ctx, ev, elsewhere, refused)
	}
	return refused
}

// claimStatic claims an address for a pod that asks for that very one.
func (a *Agent) claimStatic(ctx context.Context, ev *pod.AddPod, e ipam.ErrOutside, refused error) error {
	pools := a.claimedFrom()
	at := slices.IndexFunc(pools, func(p blocks.Pool) bool {
		return !p.Closed && nameOfPool(p) == e.Pool && p.Prefix.Contains(e.Address)
	})
	if at < 0 {
		return refused
	}
	err := a.keeper.Claim(ctx, blocks.Static{Pool: pools[at], Address: e.Address, Namespace: ev.ID.Namespace, Pod: ev.ID.Name})
	held, isHeld := errors.AsType[blocks.ErrHeld](err)
	switch {
	case err == nil:
		return nil
	case isHeld && held.Pod != "" && held.Pod == ev.ID.Name && held.Namespace == ev.ID.Namespace:
		return pod.Errorf(pod.CodeTryAgain, "%s: %w, which has not released it yet; try again", ev, err)
	case isHeld:
		return pod.Errorf(pod.CodeAddressInUse, "%s: %w; ask for another address of %s, or for none", ev, err, pools[at])
	}
	return pod.Errorf(pod.CodeTryAgain, "%s: %w; try again", ev, err)
}

// blockTaken queues a block for [Agent.isolating]. It reports whether the pods that use the block are isolated already, durably. The
// keeper calls it at each step until then.
func (a *Agent) blockTaken(b blocks.Block, by string) (isolated bool) {
	t := recovery.Taken{Network: b.Network, Prefix: b.Prefix, By: by}
	if len(a.replayer.Exposed(t)) == 0 && a.quarantine.IsDurable() && !a.network.Pods.WithholdsOthers(a.quarantine.Keys()) {
		return true
	}
	select {
	case a.taken <- t:
	default:
	}
	return false
}

// isolating disconnects pods whose addresses another node owns, until ctx ends. It starts after the first resync: the event loop holds
// other events back until then.
func (a *Agent) isolating(ctx context.Context) error {
	if err := a.health.Await(ctx, health.Started); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case t := <-a.taken:
			a.replayer.Isolate(ctx, t)
			select {
			case a.blocksChanged <- struct{}{}: // the cluster is told
			default:
			}
		}
	}
}
