package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// followed is what the cluster said that is in force. What was refused, or drains, is tried again.
type followed struct {
	view   nodeview.View
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
func (a *Agent) follow(ctx context.Context, view nodeview.View, now *followed) {
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
func (a *Agent) poolsOf(view *nodeview.View) *pod.SetPools {
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
func (a *Agent) keepView(ctx context.Context, view, before nodeview.View) bool {
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
func invalidNetworks(view nodeview.View) map[string]string {
	invalid := make(map[string]string)
	for _, f := range view.Faults {
		if f.Kind == "CustomNetwork" {
			invalid[f.Name] = f.Why
		}
	}
	return invalid
}

// networksOf are those of the configuration, and of the cluster those of other names.
func (a *Agent) networksOf(view nodeview.View) []pod.Network {
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

// wantsRanges reports whether pools are to be the node's ranges.
func (a *Agent) wantsRanges() bool {
	return len(a.config.Pools) == 0 && a.config.Kubernetes.Mode == config.InCluster && a.config.Kubernetes.Addresses == config.OfPodCIDR
}

// rangesOf are the pools that are a node's ranges. Their names are the prefixes', so that ranges of a node that joined again
// are other pools than those it had: pods may have addresses of both.
func rangesOf(node nodeview.Node) []config.Pool {
	var ranges []config.Pool
	for _, r := range node.PodCIDRs {
		ranges = append(ranges, config.Pool{Name: "pod-cidr-" + strings.NewReplacer(":", "-", "/", "-").Replace(r.String()), Prefix: r})
	}
	return ranges
}

// podPools are pools in the words of an event.
func podPools(pools []config.Pool) []pod.Pool {
	list := make([]pod.Pool, len(pools))
	for i, p := range pools {
		list[i] = pod.Pool{Name: p.Name, Prefix: p.Prefix, Disabled: p.Disabled, Namespaces: p.Namespaces}
	}
	return list
}

// besideRanges are the pools to start with: the node's ranges, and those of an earlier run that are its no more. These are
// closed, and go when no pod has an address of them.
func (a *Agent) besideRanges(kept networks.SavedPools) *networks.SavedPools {
	pools := podPools(a.ranges)
	for _, p := range kept.Pools {
		isRange := slices.ContainsFunc(pools, func(o pod.Pool) bool { return o.Prefix == p.Prefix })
		if !isRange && !p.Blocks {
			p.Disabled = true
			pools = append(pools, p)
		}
	}
	return &networks.SavedPools{Pools: pools, NamespacePools: a.config.NamespacePools, NodePools: a.config.NodePools}
}

// inRanges are the prefixes by which others lead packets to pods with addresses of ranges: these, and of ranges that are the
// node's no more each address that a pod has still.
func (a *Agent) inRanges() []netip.Prefix {
	addresses := a.network.Networks.Allocator("")
	var list, closed []netip.Prefix
	for _, p := range addresses.Pools() {
		if p.Disabled {
			closed = append(closed, p.Prefix)
			continue
		}
		list = append(list, p.Prefix)
	}
	for _, l := range addresses.Leases() {
		isClosed := slices.ContainsFunc(closed, func(p netip.Prefix) bool { return p.Contains(l.Address) })
		if isClosed && (l.State == ipam.Used || l.State == ipam.Leased) {
			list = append(list, netip.PrefixFrom(l.Address, l.Address.BitLen()))
		}
	}
	return list
}

// settings are the configuration in force: as it was read at the start, with what became of it, and the networks of now.
func (a *Agent) settings() config.Config {
	c := a.config
	c.Networks = *a.configured.Load()
	return c
}

// setFirstNetworks sets those that are known when the agent starts. Where the cluster is still to say which there are,
// those that it said last stay.
func (a *Agent) setFirstNetworks(ctx context.Context) {
	ev := &pod.SetNetworks{Networks: *a.configured.Load(), From: "configuration"}
	if a.cluster != nil {
		view := a.cluster.View()
		ev.Networks, ev.Invalid = a.networksOf(view), invalidNetworks(view)
	}
	a.setNetworks(ctx, ev)
}

// setNetworks makes these networks those of the node. What is refused, because pods run on it, stays
// as it was, and is logged when that or the reason is new; then it is false.
func (a *Agent) setNetworks(ctx context.Context, ev *pod.SetNetworks) bool {
	if _, err := a.loop.Do(ctx, ev); err != nil {
		a.log.Error("networks not set", "err", err)
		return false
	}
	told := *a.refusals.Swap(&ev.Refused)
	for _, name := range slices.Sorted(maps.Keys(ev.Refused)) {
		if reason := ev.Refused[name]; reason != told[name] {
			a.log.Error("network left as it was", "network", name, "reason", reason)
		}
	}
	return len(ev.Refused) == 0
}

// followConfig applies what may change while the agent runs, the networks, when the file of the configuration changes.
func (a *Agent) followConfig(ctx context.Context) error {
	if a.config.File == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	known := a.config
	return config.Watch(ctx, filepath.Dir(a.config.File), a.log, func() {
		next, err := a.config.Reload()
		switch {
		case err != nil:
			a.log.Error("configuration not read again, the old one stays", "file", a.config.File, "err", err)
			return
		case reflect.DeepEqual(next.Networks, known.Networks):
			return
		}
		a.log.Info("networks of the configuration changed", "file", a.config.File)
		known = next
		a.configured.Store(&next.Networks)
		a.setFirstNetworks(ctx)
	})
}

// followExternals sets the node's interfaces to the outside; again, when it is time, as long as some are not connected.
func (a *Agent) followExternals(ctx context.Context, now *followed) {
	next := &pod.SetExternals{From: "cluster"}
	for _, e := range now.view.Externals {
		next.Externals = append(next.Externals, e.External)
	}
	was, missing := now.externals, len(next.Externals)-len(a.network.Externals.All())
	known := was != nil && reflect.DeepEqual(was.Externals, next.Externals)
	switch {
	case missing == 0 && (known || len(next.Externals) == 0):
		now.externals = next
	case known && missing == len(was.Refused) && !now.tryAgain: // it would be no other way
	case a.set(ctx, next):
		a.refused("external interface", next.Refused, now.told.externals)
		now.externals, now.told.externals = next, next.Refused
	}
	a.repairLinks(ctx)
}

// repairLinks makes the scheduler check the link of an external interface that disappeared or appeared, because no component reports links
// that third parties make.
func (a *Agent) repairLinks(ctx context.Context) {
	for _, e := range a.network.Externals.All() {
		ref := kvscheduler.Ref{Kind: wire.KindLink, Name: e.Interface}
		status, _ := a.scheduler.View().Status(ref)
		failed, fault := status.Phase == kvscheduler.Failed, linux.LinkFault(e.Interface)
		switch {
		case fault == nil && status.Phase == kvscheduler.InSync, fault != nil && failed:
			continue // the scheduler knows
		case failed && status.RetryAt.IsZero():
			continue // it is there, and of no use
		}
		a.log.Info("link to the outside is not as it was", "interface", e.Interface, "err", fault)
		if _, err := a.scheduler.Resync(ctx, kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{wire.KindLink, wire.KindVLAN}}); err != nil {
			a.log.Warn("link to the outside not repaired yet", "interface", e.Interface, "err", err)
		}
		return
	}
}

// observedExternals says of each interface to the outside that this node is to have how it stands.
func (a *Agent) observedExternals(now *followed) (observed []v1.ObservedExternal) {
	if now.externals == nil {
		return nil
	}
	view := a.scheduler.View()
	for _, e := range now.view.Externals {
		isSet := func(o pod.External) bool { return reflect.DeepEqual(o, e.External) }
		if !slices.ContainsFunc(now.externals.Externals, isSet) {
			continue // not decided yet
		}
		reason := now.externals.Refused[e.Name]
		if reason == "" {
			reason = a.unsettled(view, e)
		}
		observed = append(observed, v1.ObservedExternal{Name: e.Name, Generation: e.Generation, Reason: shortened(reason)})
	}
	return observed
}

// unsettled says why an interface that was accepted is not connected; "": it is.
func (a *Agent) unsettled(view kvscheduler.View, e nodeview.External) string {
	keys := a.network.Externals.Objects(e.Name)
	if len(keys) == 0 {
		return fmt.Sprintf("network %q is not on this node", e.Network)
	}
	for _, key := range keys { // the first is what the others stand on
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			return err.Error()
		}
		switch status, _ := view.Status(ref); {
		case status.Phase == kvscheduler.InSync:
			continue
		case status.Err != nil:
			return status.Err.Error()
		default:
			return fmt.Sprintf("%s is %s: %s", key, status.Phase, strings.Join(status.Missing, ", "))
		}
	}
	return ""
}

// maxReason is how many bytes of a reason the API server takes.
const maxReason = 1024

// shortened is a reason in one line that is not too long.
func shortened(reason string) string {
	reason = strings.Join(strings.Fields(reason), " ")
	return strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}
