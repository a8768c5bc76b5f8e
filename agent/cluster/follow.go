// Package cluster is the part of a node in its cluster: it applies what the API server shows as events of the event loop, and writes what other
// nodes, operators and authors of pods need to know of the node.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// Follower applies what the cluster says as events, and announces what this node has of it.
type Follower struct {
	FollowerConfig

	podChanges atomic.Uint64 // number of added and deleted pods
	rejections atomic.Int64  // rejected parts of other nodes' announcements
}

// FollowerConfig is what a follower works with.
type FollowerConfig struct {
	Parts
	Config    config.Config
	Cluster   *nodeview.Cluster
	Blocks    *Blocks
	Announcer *Announcer
	State     *statefile.File
	Health    *health.Conditions
	UplinkMTU int
	Log       *slog.Logger
}

// viewKey is the key of the last view of the cluster in the bucket "cluster" of the state file.
const viewKey = "view"

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

// NewFollower follows nothing before Run.
func NewFollower(c FollowerConfig) *Follower { return &Follower{FollowerConfig: c} }

// CountChange takes what happened to an attachment: added and deleted pods may make possible what was refused.
func (f *Follower) CountChange(o podmanager.Outcome) {
	if o.Happening != podmanager.Failed {
		f.podChanges.Add(1)
	}
}

// Run applies what the cluster says, whenever that changes: pools, then networks, then this node's blocks of
// both, then the other nodes with theirs, then the interfaces to the outside. What is applied is told to them.
func (f *Follower) Run(ctx context.Context) error {
	if err := f.Health.Await(ctx, health.Started); err != nil {
		return err
	}
	var now followed
	tick := time.NewTicker(followTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.Cluster.Changed(): // of anything, such as a pod or a heartbeat of the node
		case <-f.Blocks.changed:
			now.changed()
		case <-tick.C:
			now.tick(f.podChanges.Load())
		}
		if view := f.Cluster.View(); view.Complete {
			f.follow(ctx, view, &now)
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
func (f *Follower) follow(ctx context.Context, view nodeview.View, now *followed) {
	before := now.view
	isNew := !reflect.DeepEqual(view, before)
	if isNew {
		now.changed()
	}
	if isNew || now.ticked && !now.kept {
		now.kept = f.keepView(ctx, view, before)
	}
	now.view = view
	f.followPools(ctx, now)
	if !before.Complete || now.tryAgain && !now.networksSettled || !reflect.DeepEqual(view.Networks, before.Networks) ||
		!maps.Equal(invalidNetworks(view), invalidNetworks(before)) {
		now.networksSettled = f.Networks.Set(ctx, &pod.SetNetworks{Networks: f.Networks.Of(view), Invalid: invalidNetworks(view), From: "cluster"})
		now.blocks = nil // some may wait for their network
	}
	f.followBlocks(ctx, now)
	f.followNodes(ctx, now)
	f.followExternals(ctx, now)
	f.announce(now)
	f.Blocks.keeper.Poke()
}

// followPools sets the pools of the cluster, or the node's ranges of it, where the node's are these.
func (f *Follower) followPools(ctx context.Context, now *followed) {
	next := f.poolsOf(&now.view)
	if next == nil {
		return
	}
	if was := now.pools; was != nil && (!now.tryAgain || len(was.Refused) == 0) && reflect.DeepEqual(was.Pools, next.Pools) &&
		reflect.DeepEqual(was.NamespacePools, next.NamespacePools) && slices.Equal(was.NodePools, next.NodePools) {
		return
	}
	if f.set(ctx, next) {
		f.refused("pool", next.Refused, now.told.pools)
		now.pools, now.blocks, now.told.pools = next, nil, next.Refused // blocks of a new pool wait for it
	}
}

// poolsOf are the pools that a view wants; nil: it says nothing of them.
func (f *Follower) poolsOf(view *nodeview.View) *pod.SetPools {
	switch {
	case f.Config.Kubernetes.Addresses == config.OfPools:
		next := &pod.SetPools{NamespacePools: view.NamespacePools, NodePools: view.Node.Pools, From: "cluster"}
		for _, p := range view.AllocatorPools() {
			next.Pools = append(next.Pools, pod.Pool{Name: p.Name, Prefix: p.Prefix, Blocks: p.Blocks, Disabled: p.Disabled, Namespaces: p.Namespaces})
		}
		return next
	case f.Config.HasRanges() && len(view.Node.PodCIDRs) > 0:
		return &pod.SetPools{Pools: podPools(RangesOf(view.Node)), NamespacePools: f.Config.NamespacePools, NodePools: f.Config.NodePools, From: "cluster"}
	}
	return nil
}

// followBlocks sets the blocks that the keeper has.
func (f *Follower) followBlocks(ctx context.Context, now *followed) {
	next := &pod.SetBlocks{Blocks: f.Blocks.Held(), From: "cluster"}
	if was := now.blocks; was != nil && (!now.tryAgain || len(was.Refused)+len(was.Draining) == 0) && reflect.DeepEqual(was.Blocks, next.Blocks) {
		return
	}
	if f.set(ctx, next) {
		f.refused("block", next.Refused, now.told.blocks)
		now.blocks, now.told.blocks = next, next.Refused
		f.Blocks.Know(next.Blocks)
	}
}

// followNodes sets the other nodes, and what this one is among them.
func (f *Follower) followNodes(ctx context.Context, now *followed) {
	self := pod.Node{Name: f.Config.Kubernetes.Node, ID: f.Cluster.NodeID(), Addresses: now.view.Node.Addresses, Parts: f.parts(now)}
	mesh := f.Cluster.Mesh()
	f.showRejections(mesh.Rejected, now)
	next := &pod.SetNodes{Self: self, Nodes: mesh.Nodes, From: "cluster"}
	if was := now.nodes; was != nil && reflect.DeepEqual(was.Self, next.Self) && reflect.DeepEqual(was.Nodes, next.Nodes) {
		return
	}
	if f.set(ctx, next) {
		f.refused("node", next.Refused, now.told.nodes)
		now.nodes, now.told.nodes = next, next.Refused
		now.changed()
	}
}

// set has the loop handle an event.
func (f *Follower) set(ctx context.Context, ev eventloop.Event) bool {
	if _, err := f.Loop.Do(ctx, ev); err != nil {
		f.Log.Error("what the cluster says is not set", "event", ev.String(), "err", err)
		return false
	}
	return true
}

// refused tells what the cluster says that cannot be, once.
func (f *Follower) refused(what string, reasons, told map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if told[name] != reasons[name] {
			f.Log.Warn("object of the cluster left as it was, or out", "object", what, "name", name, "reason", reasons[name])
		}
	}
}

// keepView makes a view durable, and then tells of the pause and the faults that are new in it. False: it is not durable.
func (f *Follower) keepView(ctx context.Context, view, before nodeview.View) bool {
	err := f.State.Save(ctx, []eventloop.Saved{{Bucket: statefile.BucketCluster, Key: viewKey, Value: view}})
	if err != nil {
		f.Log.Error("what is known of the cluster is not saved, trying again", "err", err)
	}
	switch {
	case view.Paused != "" && view.Paused != before.Paused:
		f.Log.Warn("pods that start are held up", "reason", view.Paused)
	case view.Paused != before.Paused:
		f.Log.Info("pods that start are held up no more")
	}
	for _, fault := range view.Faults {
		if !slices.Contains(before.Faults, fault) {
			f.Log.Warn("object of the cluster is not as it should be", "kind", fault.Kind, "name", fault.Name, "reason", fault.Why)
		}
	}
	return err == nil
}

// parts returns this node's address blocks by network. Other nodes route packets for them to this node.
func (f *Follower) parts(now *followed) []pod.NodePart {
	var held []pod.Block
	if now.blocks != nil {
		held = now.blocks.Blocks
	}
	own := pod.NodePart{Network: pod.DefaultNetwork, Blocks: blocksOf("", held)}
	for _, p := range f.Config.Pools {
		own.Blocks = append(own.Blocks, p.Prefix)
	}
	if f.Config.HasRanges() {
		own.Blocks = append(own.Blocks, f.inRanges()...)
	}
	parts := []pod.NodePart{own}
	for _, n := range now.view.Networks {
		parts = append(parts, pod.NodePart{Network: n.Name, Blocks: blocksOf(n.Name, held)})
	}
	return parts
}

// announce queues the node's announcement to the other nodes, and replaces one that is not written yet.
func (f *Follower) announce(now *followed) {
	said := announcement.Announcement{UID: now.view.Node.UID, Version: version.String(), Spec: v1.NodeNetworkSpec{Tunnel: f.tunnel()}}
	for _, address := range oneOfAFamily(now.view.Node.Addresses) {
		said.Spec.Addresses = append(said.Spec.Addresses, v1.IP(address.String()))
	}
	for _, p := range f.parts(now) {
		part := v1.NodePart{Name: p.Network, VNI: vniOf(p.Network, now.view.Networks)}
		for _, b := range p.Blocks {
			part.CIDRs = append(part.CIDRs, v1.CIDR(b.String()))
		}
		said.Spec.Networks = append(said.Spec.Networks, part)
	}
	said.Networks, said.Refused = f.observed(now.view)
	said.Externals = f.observedExternals(now)
	said.Taken = f.Quarantine.Taken()
	if err := f.Health.MissingBut(health.Announced); err != nil {
		said.NotReady = err.Error()
	}
	select {
	case <-f.Announcer.latest: // it is out of date
	default:
	}
	f.Announcer.latest <- said
}

// tunnel returns how other nodes reach this node.
func (f *Follower) tunnel() v1.Tunnel {
	if f.Config.Kubernetes.Tunnel == networks.TunnelNone {
		return v1.Tunnel{Type: v1.TunnelNone, MTU: int32(f.UplinkMTU)}
	}
	return v1.Tunnel{Type: v1.TunnelVXLAN, Port: wire.VXLANPort, MTU: int32(f.UplinkMTU)}
}

// oneOfAFamily returns the first address of each family.
func oneOfAFamily(addresses []netip.Addr) []netip.Addr {
	var first []netip.Addr
	for _, a := range addresses {
		if !slices.ContainsFunc(first, func(f netip.Addr) bool { return f.Is4() == a.Is4() }) {
			first = append(first, a)
		}
	}
	return first
}

func vniOf(network string, networks []pod.Network) int32 {
	for _, n := range networks {
		if n.Name == network {
			return int32(n.VNI)
		}
	}
	return 0
}

// observed returns the state of the cluster's networks on this node: as specified, or the reason why not.
func (f *Follower) observed(view nodeview.View) (has []v1.Observed, refused []v1.Refusal) {
	reasons := *f.Networks.refusals.Load()
	for _, name := range view.Deleting {
		if pods, closed := f.lastPods(name); closed {
			has = append(has, v1.Observed{Name: name, Generation: view.Generations[name], Closed: true, Pods: pods})
		} else {
			refused = append(refused, v1.Refusal{Name: name, Reason: "it is being deleted, and this node has not closed it yet"})
		}
	}
	for _, n := range view.Networks {
		if n.Closed {
			continue
		}
		if reason, is := reasons[n.Name]; is {
			refused = append(refused, v1.Refusal{Name: n.Name, Reason: reason})
			continue
		}
		has = append(has, v1.Observed{Name: n.Name, Generation: view.Generations[n.Name]})
	}
	return has, refused
}

// mostNamed limits the pods that one status field names.
const mostNamed = 16

// lastPods returns the names of pods that use a network of the cluster which is being deleted. closed reports whether the node adds no
// more pods to it, so that these are the last ones.
func (f *Follower) lastPods(network string) (pods []string, closed bool) {
	if f.Networks.isConfigured(network) {
		return nil, true // the configuration of this node has another network of that name
	}
	if !f.Network.Networks.IsClosed(network) {
		return nil, false
	}
	for _, at := range f.Pods.Attachments() {
		on := slices.ContainsFunc(at.Interfaces, func(i pod.Interface) bool { return i.Network == network })
		if name := cmp.Or(at.Pod.String(), at.Key.ContainerID); on && !slices.Contains(pods, name) {
			pods = append(pods, name)
		}
	}
	slices.Sort(pods)
	return pods[:min(len(pods), mostNamed)], true
}

// inRanges are the prefixes by which others lead packets to pods with addresses of ranges: these, and of ranges that are the
// node's no more each address that a pod has still.
func (f *Follower) inRanges() []netip.Prefix {
	addresses := f.Network.Networks.Allocator("")
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

// followExternals sets the node's interfaces to the outside; again, when it is time, as long as some are not connected.
func (f *Follower) followExternals(ctx context.Context, now *followed) {
	next := &pod.SetExternals{From: "cluster"}
	for _, e := range now.view.Externals {
		next.Externals = append(next.Externals, e.External)
	}
	was, missing := now.externals, len(next.Externals)-len(f.Network.Externals.All())
	known := was != nil && reflect.DeepEqual(was.Externals, next.Externals)
	switch {
	case missing == 0 && (known || len(next.Externals) == 0):
		now.externals = next
	case known && missing == len(was.Refused) && !now.tryAgain: // it would be no other way
	case f.set(ctx, next):
		f.refused("external interface", next.Refused, now.told.externals)
		now.externals, now.told.externals = next, next.Refused
	}
	f.repairLinks(ctx)
}

// repairLinks makes the scheduler check the link of an external interface that disappeared or appeared, because no component reports links
// that third parties make.
func (f *Follower) repairLinks(ctx context.Context) {
	for _, e := range f.Network.Externals.All() {
		ref := kvscheduler.Ref{Kind: wire.KindLink, Name: e.Interface}
		status, _ := f.Scheduler.View().Status(ref)
		failed, fault := status.Phase == kvscheduler.Failed, linux.LinkFault(e.Interface)
		switch {
		case fault == nil && status.Phase == kvscheduler.InSync, fault != nil && failed:
			continue // the scheduler knows
		case failed && status.RetryAt.IsZero():
			continue // it is there, and of no use
		}
		f.Log.Info("link to the outside is not as it was", "interface", e.Interface, "err", fault)
		if _, err := f.Scheduler.Resync(ctx, kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{wire.KindLink, wire.KindVLAN}}); err != nil {
			f.Log.Warn("link to the outside not repaired yet", "interface", e.Interface, "err", err)
		}
		return
	}
}

// observedExternals says of each interface to the outside that this node is to have how it stands.
func (f *Follower) observedExternals(now *followed) (observed []v1.ObservedExternal) {
	if now.externals == nil {
		return nil
	}
	view := f.Scheduler.View()
	for _, e := range now.view.Externals {
		isSet := func(o pod.External) bool { return reflect.DeepEqual(o, e.External) }
		if !slices.ContainsFunc(now.externals.Externals, isSet) {
			continue // not decided yet
		}
		reason := now.externals.Refused[e.Name]
		if reason == "" {
			reason = f.unsettled(view, e)
		}
		observed = append(observed, v1.ObservedExternal{Name: e.Name, Generation: e.Generation, Reason: shortened(reason)})
	}
	return observed
}

// unsettled says why an interface that was accepted is not connected; "": it is.
func (f *Follower) unsettled(view kvscheduler.View, e nodeview.External) string {
	keys := f.Network.Externals.Objects(e.Name)
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

// The maximum numbers of rejections that are shown at a time.
const (
	shownRejections = 8 // in a condition's message; of one node in a round of the log
	shownOfNode     = 2 // of one node in a condition's message
)

// showRejections reports the parts of other nodes' announcements that are not used: in a condition and a metric at once, and in the log
// once each after some time, because an announcement may arrive before the Node or the IPBlock that grants it.
func (f *Follower) showRejections(rejected []announcement.Rejection, now *followed) {
	f.rejections.Store(int64(len(rejected)))
	f.Health.Set(health.Announcements, len(rejected) == 0, summary(rejected))
	if !now.ticked {
		return
	}
	logged := make(map[announcement.Rejection]bool)
	lines := make(map[string]int) // by node: the rejections of one node do not crowd out those of the others
	for _, r := range rejected {
		if !now.rejected[r] {
			if lines[r.Node] == shownRejections {
				continue // a later round logs it
			}
			lines[r.Node]++
			f.Log.Warn("part of a node's announcement rejected", "node", r.Node, "network", r.Network, "part", r.What, "reason", r.Reason)
		}
		logged[r] = true
	}
	now.rejected = logged
}

// summary returns some of the rejections in one line, or "".
func summary(rejected []announcement.Rejection) string {
	var lines []string
	of := make(map[string]int)
	for _, r := range rejected {
		if of[r.Node]++; of[r.Node] <= shownOfNode && len(lines) < shownRejections {
			lines = append(lines, r.String())
		}
	}
	if more := len(rejected) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

// again says at which ticks what was refused is tried again: ever more rarely, as long as nothing changes. The zero value
// does at the next tick.
type again struct {
	pause int // ticks between the last try and the next one
	left  int // of them
}

// longestPause is the longest pause in ticks: 5 minutes.
const longestPause = 30

// tick reports whether to try now.
func (g *again) tick() bool {
	if g.left--; g.left > 0 {
		return false
	}
	g.pause = min(max(2*g.pause, 1), longestPause)
	g.left = g.pause
	return true
}

// reset makes it the next tick.
func (g *again) reset() { *g = again{} }
