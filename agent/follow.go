package agent

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/k8s"
	"github.com/weftnet/weft/k8s/announcement"
	"github.com/weftnet/weft/pod"
)

// followed is what the cluster said that is in force. What was refused, or drains, is tried again.
type followed struct {
	view   k8s.View
	pools  *pod.SetPools
	blocks *pod.SetBlocks
	nodes  *pod.SetNodes

	externals *pod.SetExternals

	networksSettled bool // all networks of view are the node's
	kept            bool // view is durable

	ticked   bool   // some time has passed
	tryAgain bool   // it is time to set again what was refused
	again    again  // when that is, where nothing changes
	pods     uint64 // how often pods had changed when that was looked at last

	rejected map[announcement.Rejection]bool // parts of announcements that are not used, as logged

	told struct{ pools, blocks, nodes, externals map[string]string } // by name, why something is not as the cluster wants it
}

// followTick is the time after which what was refused is set again, at first, and links to the outside are looked at.
const followTick = 10 * time.Second

// followCluster applies what the cluster says, whenever that changes: pools, then networks, then this node's blocks of
// both, then the other nodes with theirs, then the interfaces to the outside. What is applied is told to them.
func (a *Agent) followCluster(ctx context.Context) error {
	if err := a.health.Await(ctx, health.Started); err != nil {
		return err
	}
	var now followed
	tick := time.NewTicker(followTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.cluster.Changed(): // of anything, such as a pod or a heartbeat of the node
		case <-a.blocksChanged:
			now.changed()
		case <-tick.C:
			now.tick(a.podChanges.Load())
		}
		if view := a.cluster.View(); view.Complete {
			a.follow(ctx, view, &now)
			now.ticked, now.tryAgain = false, false
		}
	}
}

// changed says that what was refused may be possible now.
func (f *followed) changed() {
	f.tryAgain = true
	f.again.reset()
}

// tick says that some time has passed, and how often pods have changed: what is refused is so because pods use something.
func (f *followed) tick(pods uint64) {
	if f.pods != pods {
		f.pods = pods
		f.again.reset()
	}
	f.ticked = true
	f.tryAgain = f.again.tick() || f.tryAgain
}

// follow makes what the cluster says now what is in force.
func (a *Agent) follow(ctx context.Context, view k8s.View, now *followed) {
	before := now.view
	isNew := !reflect.DeepEqual(view, before)
	if isNew {
		now.changed()
	}
	if isNew || now.ticked && !now.kept {
		now.kept = a.keepView(ctx, view, before)
	}
	now.view = view
	a.followPools(ctx, now)
	if !before.Complete || now.tryAgain && !now.networksSettled || !reflect.DeepEqual(view.Networks, before.Networks) ||
		!maps.Equal(invalidNetworks(view), invalidNetworks(before)) {
		now.networksSettled = a.setNetworks(ctx, &pod.SetNetworks{Networks: a.networksOf(view), Invalid: invalidNetworks(view), From: "cluster"})
		now.blocks = nil // some may wait for their network
	}
	a.followBlocks(ctx, now)
	a.followNodes(ctx, now)
	a.followExternals(ctx, now)
	a.announce(now)
	a.keeper.Poke()
}

// followPools sets the pools of the cluster, or the node's ranges of it, where the node's are these.
func (a *Agent) followPools(ctx context.Context, now *followed) {
	next := a.poolsOf(&now.view)
	if next == nil {
		return
	}
	if was := now.pools; was != nil && (!now.tryAgain || len(was.Refused) == 0) && reflect.DeepEqual(was.Pools, next.Pools) &&
		reflect.DeepEqual(was.NamespacePools, next.NamespacePools) && slices.Equal(was.NodePools, next.NodePools) {
		return
	}
	if a.set(ctx, next) {
		a.refused("pool", next.Refused, now.told.pools)
		now.pools, now.blocks, now.told.pools = next, nil, next.Refused // blocks of a new pool wait for it
	}
}

// poolsOf are the pools that a view wants; nil: it says nothing of them.
func (a *Agent) poolsOf(view *k8s.View) *pod.SetPools {
	switch {
	case a.config.Kubernetes.Addresses == config.OfPools:
		next := &pod.SetPools{NamespacePools: view.NamespacePools, NodePools: view.Node.Pools, From: "cluster"}
		for _, p := range view.AllocatorPools() {
			next.Pools = append(next.Pools, pod.Pool{Name: p.Name, Prefix: p.Prefix, Blocks: p.Blocks, Disabled: p.Disabled, Namespaces: p.Namespaces})
		}
		return next
	case a.wantsRanges() && len(view.Node.PodCIDRs) > 0:
		return &pod.SetPools{Pools: podPools(rangesOf(view.Node)), NamespacePools: a.config.NamespacePools, NodePools: a.config.NodePools, From: "cluster"}
	}
	return nil
}

// followBlocks sets the blocks that the keeper has.
func (a *Agent) followBlocks(ctx context.Context, now *followed) {
	next := &pod.SetBlocks{Blocks: a.heldBlocks(), From: "cluster"}
	if was := now.blocks; was != nil && (!now.tryAgain || len(was.Refused)+len(was.Draining) == 0) && reflect.DeepEqual(was.Blocks, next.Blocks) {
		return
	}
	if a.set(ctx, next) {
		a.refused("block", next.Refused, now.told.blocks)
		now.blocks, now.told.blocks = next, next.Refused
		a.knowAddresses(next.Blocks)
	}
}

// followNodes sets the other nodes, and what this one is among them.
func (a *Agent) followNodes(ctx context.Context, now *followed) {
	self := pod.Node{Name: a.config.Kubernetes.Node, ID: a.cluster.NodeID(), Addresses: now.view.Node.Addresses, Parts: a.parts(now)}
	mesh := a.cluster.Mesh()
	a.showRejections(mesh.Rejected, now)
	next := &pod.SetNodes{Self: self, Nodes: mesh.Nodes, From: "cluster"}
	if was := now.nodes; was != nil && reflect.DeepEqual(was.Self, next.Self) && reflect.DeepEqual(was.Nodes, next.Nodes) {
		return
	}
	if a.set(ctx, next) {
		a.refused("node", next.Refused, now.told.nodes)
		now.nodes, now.told.nodes = next, next.Refused
		now.changed()
	}
}

// set has the loop handle an event.
func (a *Agent) set(ctx context.Context, ev eventloop.Event) bool {
	if _, err := a.loop.Do(ctx, ev); err != nil {
		a.log.Error("what the cluster says is not set", "event", ev.String(), "err", err)
		return false
	}
	return true
}

// refused tells what the cluster says that cannot be, once.
func (a *Agent) refused(what string, reasons, told map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if told[name] != reasons[name] {
			a.log.Warn("object of the cluster left as it was, or out", "object", what, "name", name, "reason", reasons[name])
		}
	}
}

// keepView makes a view durable, and then tells of the pause and the faults that are new in it. False: it is not durable.
func (a *Agent) keepView(ctx context.Context, view, before k8s.View) bool {
	err := a.state.Save(ctx, []eventloop.Saved{{Bucket: statefile.BucketCluster, Key: viewKey, Value: view}})
	if err != nil {
		a.log.Error("what is known of the cluster is not saved, trying again", "err", err)
	}
	switch {
	case view.Paused != "" && view.Paused != before.Paused:
		a.log.Warn("pods that start are held up", "reason", view.Paused)
	case view.Paused != before.Paused:
		a.log.Info("pods that start are held up no more")
	}
	for _, f := range view.Faults {
		if !slices.Contains(before.Faults, f) {
			a.log.Warn("object of the cluster is not as it should be", "kind", f.Kind, "name", f.Name, "reason", f.Why)
		}
	}
	return err == nil
}

// invalidNetworks returns the reason why no node can have a CustomNetwork, by its name.
func invalidNetworks(view k8s.View) map[string]string {
	invalid := make(map[string]string)
	for _, f := range view.Faults {
		if f.Kind == "CustomNetwork" {
			invalid[f.Name] = f.Why
		}
	}
	return invalid
}

// networksOf are those of the configuration, and of the cluster those of other names.
func (a *Agent) networksOf(view k8s.View) []pod.Network {
	configured := *a.configured.Load()
	networks := slices.Clone(configured)
	for _, n := range view.Networks {
		if slices.ContainsFunc(configured, func(o pod.Network) bool { return o.Name == n.Name }) {
			a.log.Warn("network of the cluster left out: the configuration has one of that name", "network", n.Name)
			continue
		}
		networks = append(networks, n)
	}
	return networks
}
