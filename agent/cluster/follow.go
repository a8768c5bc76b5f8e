// Package cluster makes the node a member of its Kubernetes cluster: it applies objects of the API server as events of
// the event loop, and writes the state of the node for other nodes, operators and authors of pods.
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
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

// Follower applies the view of the cluster by events, and announces the result.
type Follower struct {
	FollowerConfig

	podChanges atomic.Uint64 // number of added and deleted pods
	rejections atomic.Int64  // rejected parts of other nodes' announcements

	others atomic.Pointer[[]pod.Node] // as the API server last showed them

	routedChanged chan struct{} // holds a token if a pod with prefixes behind it was added or deleted
}

// FollowerConfig has the dependencies of a follower.
type FollowerConfig struct {
	Parts
	Config    config.Config
	Cluster   *nodeview.Cluster
	Blocks    *Blocks
	Announcer *Announcer
	State     *statefile.File
	Health    *health.Conditions
	UplinkMTU int
	Enforced  *policies.Policies // nil: policies are not enforced
	Log       *slog.Logger
}

// viewKey is the key of the last view of the cluster in the bucket "cluster" of the state file.
const viewKey = "view"

// followed is the applied part of the cluster's view. Refused and draining objects are retried.
type followed struct {
	view   nodeview.View
	pools  *pod.SetPools
	blocks *pod.SetBlocks
	nodes  *pod.SetNodes

	externals *pod.SetExternals

	networksSettled bool // no network of view was refused
	kept            bool // view is durable

	retrying

	rejected map[announcement.Rejection]bool // parts of announcements that are not used, as logged

	clients     clients
	definitions definitions

	told struct{ pools, blocks, nodes, externals map[string]string } // by name, the logged reason of a refusal
}

// followTick is the first pause before refused objects are retried, and the poll interval of external links.
const followTick = 10 * time.Second

// NewFollower returns a follower. It does not follow before Run.
func NewFollower(c FollowerConfig) *Follower {
	return &Follower{FollowerConfig: c, routedChanged: make(chan struct{}, 1)}
}

// CountChange takes what happened to an attachment: a refused object may be possible after a pod was added or deleted.
func (f *Follower) CountChange(o podmanager.Outcome) {
	if o.Happening == podmanager.Failed {
		return
	}
	f.podChanges.Add(1)
	hadRouted := o.Before != nil && slices.ContainsFunc(o.Before.Interfaces, hasRouted)
	if hadRouted || o.Attachment != nil && slices.ContainsFunc(o.Attachment.Interfaces, hasRouted) {
		select {
		case f.routedChanged <- struct{}{}:
		default:
		}
	}
}

func hasRouted(i pod.Interface) bool { return len(i.RoutedPrefixes) > 0 }

// Run applies the view of the cluster whenever it changes, until ctx ends: pools, networks, this node's blocks of both,
// the other nodes with theirs, external interfaces. Then it announces the result to the other nodes.
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
		case <-f.routedChanged:
		case <-tick.C:
			now.tick(f.podChanges.Load())
		}
		if view := f.Cluster.View(); view.Complete {
			f.follow(ctx, view, &now)
			now.done()
		}
	}
}

// follow applies a view.
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
	if isNew {
		f.Network.Networks.HoldFor(view.IPAMClaims)
	}
	f.followPools(ctx, now)
	if !before.Complete || now.tryAgain && !now.networksSettled || !reflect.DeepEqual(view.Networks, before.Networks) ||
		!maps.Equal(invalidNetworks(view), invalidNetworks(before)) {
		now.networksSettled = f.Networks.Set(ctx, &pod.SetNetworks{
			Networks: f.Networks.Of(view),
			Invalid:  invalidNetworks(view),
			From:     "cluster",
		})
		now.blocks = nil // a block may wait for its network
	}
	f.followBlocks(ctx, now)
	f.followNodes(ctx, now)
	f.followExternals(ctx, now)
	f.announce(now)
	f.Blocks.keeper.Poke()
}

// followPools sets the pools of the cluster, or the node's podCIDRs if these are its pools.
func (f *Follower) followPools(ctx context.Context, now *followed) {
	next := f.poolsOf(&now.view)
	if next == nil {
		return
	}
	if was := now.pools; was != nil && (!now.tryAgain || len(was.Refused) == 0) &&
		reflect.DeepEqual(was.Pools, next.Pools) &&
		reflect.DeepEqual(was.NamespacePools, next.NamespacePools) && slices.Equal(was.NodePools, next.NodePools) {
		return
	}
	if f.set(ctx, next) {
		f.refused("pool", next.Refused, now.told.pools)
		now.pools = next
		now.blocks = nil
		now.told.pools = next.Refused // a block may wait for its pool
	}
}

// poolsOf returns the pools of a view; nil: pools do not come from the cluster.
func (f *Follower) poolsOf(view *nodeview.View) *pod.SetPools {
	switch {
	case f.Config.Kubernetes.Addresses == config.OfPools:
		return &pod.SetPools{
			Pools:          view.AllocatorPools(),
			NamespacePools: view.NamespacePools,
			NodePools:      view.Node.Pools,
			From:           "cluster",
		}
	case f.Config.HasRanges() && len(view.Node.PodCIDRs) > 0:
		return &pod.SetPools{
			Pools:          RangesOf(view.Node),
			NamespacePools: f.Config.Addresses.NamespacePools,
			NodePools:      f.Config.Addresses.NodePools,
			From:           "cluster",
		}
	}
	return nil
}

// followBlocks sets the blocks of this node.
func (f *Follower) followBlocks(ctx context.Context, now *followed) {
	next := &pod.SetBlocks{Blocks: f.Blocks.Held(), From: "cluster"}
	if was := now.blocks; was != nil && (!now.tryAgain || len(was.Refused)+len(was.Draining) == 0) &&
		reflect.DeepEqual(was.Blocks, next.Blocks) {
		return
	}
	if f.set(ctx, next) {
		f.refused("block", next.Refused, now.told.blocks)
		now.blocks = next
		now.told.blocks = next.Refused
		f.Blocks.Know(next.Blocks)
	}
}

// followNodes sets the other nodes, and this node as they see it.
func (f *Follower) followNodes(ctx context.Context, now *followed) {
	self := pod.Node{
		Name:      f.Config.Kubernetes.Node,
		ID:        f.Cluster.NodeID(),
		Addresses: now.view.Node.Addresses,
		Parts:     f.parts(now),
	}
	mesh := f.Cluster.Mesh()
	f.showRejections(mesh.Rejected, now)
	f.others.Store(&mesh.Nodes)
	f.tellNetworks(self, mesh.Nodes, now)
	self.ClientRanges = f.clientRanges(self, mesh.Nodes, now)
	next := &pod.SetNodes{Self: self, Nodes: now.clients.partners(mesh.Nodes), From: "cluster"}
	if was := now.nodes; was != nil && reflect.DeepEqual(was.Self, next.Self) &&
		reflect.DeepEqual(was.Nodes, next.Nodes) {
		return
	}
	if f.set(ctx, next) {
		f.refused("node", next.Refused, now.told.nodes)
		now.nodes = next
		now.told.nodes = next.Refused
		now.changed()
	}
}

// set submits an event to the loop. It returns false if the event failed.
func (f *Follower) set(ctx context.Context, ev eventloop.Event) bool {
	if _, err := f.Loop.Do(ctx, ev); err != nil {
		f.Log.Error("change from the API server not applied", "event", ev.String(), "err", err)
		return false
	}
	return true
}

// refused logs new refusals.
func (f *Follower) refused(what string, reasons, told map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if told[name] != reasons[name] {
			f.Log.Warn("change of an object from the API server rejected", "object", what, "name", name,
				"reason", reasons[name])
		}
	}
}

// keepView makes a view durable, and logs its new faults and changes of the pause. It returns false if the view is not
// durable.
func (f *Follower) keepView(ctx context.Context, view, before nodeview.View) bool {
	err := f.State.Save(ctx, []eventloop.Saved{{Bucket: statefile.BucketCluster, Key: viewKey, Value: view}})
	if err != nil {
		f.Log.Error("view of the cluster not saved, retrying", "err", err)
	}
	switch {
	case view.Paused != "" && view.Paused != before.Paused:
		f.Log.Warn("new pods are paused", "reason", view.Paused)
	case view.Paused != before.Paused:
		f.Log.Info("new pods are served again")
	}
	for _, fault := range view.Faults {
		if !slices.Contains(before.Faults, fault) {
			f.Log.Warn("invalid object in the API server", "kind", fault.Kind, "name", fault.Name,
				"reason", fault.Why)
		}
	}
	return err == nil
}

// parts returns this node's address blocks by network. Other nodes route packets for them to this node.
func (f *Follower) parts(now *followed) []pod.NodePart {
	var held []netaddr.Block
	if now.blocks != nil {
		held = now.blocks.Blocks
	}
	own := pod.NodePart{Network: pod.DefaultNetwork, Blocks: blocksOf("", held)}
	for _, p := range f.Config.Addresses.Pools {
		own.Blocks = append(own.Blocks, p.Prefix)
	}
	if f.Config.HasRanges() {
		own.Blocks = append(own.Blocks, f.inRanges()...)
	}
	parts := []pod.NodePart{own}
	routed := routedOf(f.Pods.Attachments())
	for _, n := range now.view.Networks {
		parts = append(parts, pod.NodePart{
			Network: n.Name,
			Blocks:  blocksOf(n.Name, held),
			Routed:  routed[n.Name],
		})
	}
	return parts
}

// routedOf returns the prefixes behind pods, by network.
func routedOf(attachments []pod.Attachment) map[string][]netip.Prefix {
	prefixes := make(map[string][]netip.Prefix)
	for _, a := range attachments {
		for _, i := range a.Interfaces {
			prefixes[i.Network] = append(prefixes[i.Network], i.RoutedPrefixes...)
		}
	}
	for network := range prefixes {
		slices.SortFunc(prefixes[network], netip.Prefix.Compare)
		prefixes[network] = slices.Compact(prefixes[network])
	}
	return prefixes
}

// announce queues the node's announcement to the other nodes, and replaces one that is not written yet.
func (f *Follower) announce(now *followed) {
	said := announcement.Announcement{
		UID:     now.view.Node.UID,
		Version: version.String(),
		Spec:    v1.NodeNetworkSpec{Tunnel: f.tunnel()},
	}
	for _, address := range oneOfAFamily(now.view.Node.Addresses) {
		said.Spec.Addresses = append(said.Spec.Addresses, v1.IP(address.String()))
	}
	for _, p := range f.parts(now) {
		part := v1.NodePart{Name: p.Network, VNI: vniOf(p.Network, now.view.Networks)}
		for _, b := range p.Blocks {
			part.CIDRs = append(part.CIDRs, v1.CIDR(b.String()))
		}
		for _, b := range p.Routed {
			part.RoutedPrefixes = append(part.RoutedPrefixes, v1.CIDR(b.String()))
		}
		said.Spec.Networks = append(said.Spec.Networks, part)
	}
	if now.nodes != nil {
		for _, p := range now.nodes.Self.ClientRanges {
			said.Spec.ServiceClientRanges = append(said.Spec.ServiceClientRanges, v1.CIDR(p.String()))
		}
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
	tunnel := tunnelOf(f.Config.Kubernetes)
	tunnel.MTU = int32(f.UplinkMTU)
	return tunnel
}

// tunnelOf returns the encapsulation of a configuration.
func tunnelOf(k config.Kubernetes) v1.Tunnel {
	switch k.Tunnel {
	case networks.TunnelVXLAN4:
		return v1.Tunnel{Type: v1.TunnelVXLAN, IPFamily: v1.IPv4, Port: int32(k.VXLANPort)}
	case networks.TunnelVXLAN6:
		return v1.Tunnel{Type: v1.TunnelVXLAN, IPFamily: v1.IPv6, Port: int32(k.VXLANPort)}
	}
	return v1.Tunnel{Type: v1.TunnelNone}
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
			refused = append(refused, v1.Refusal{
				Name:   name,
				Reason: "it is being deleted, and this node has not closed it yet",
			})
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

// lastPods returns the names of pods that use a network of the cluster which is being deleted. closed reports whether
// the node adds no more pods to it, so that these are the last ones.
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

// inRanges returns the prefixes that other nodes route to this node: its ranges, and each address in use of a range
// that it no longer has.
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
			list = append(list, netaddr.Single(l.Address))
		}
	}
	return list
}

// followExternals sets the external interfaces of the node, and retries those that are not connected.
func (f *Follower) followExternals(ctx context.Context, now *followed) {
	next := &pod.SetExternals{From: "cluster"}
	for _, e := range now.view.Externals {
		next.Externals = append(next.Externals, e.External)
	}
	was := now.externals
	missing := len(next.Externals) - len(f.Network.Externals.All())
	known := was != nil && reflect.DeepEqual(was.Externals, next.Externals)
	switch {
	case missing == 0 && (known || len(next.Externals) == 0):
		now.externals = next
	case known && missing == len(was.Refused) && !now.tryAgain: // the result would be the same
	case f.set(ctx, next):
		f.refused("external interface", next.Refused, now.told.externals)
		now.externals = next
		now.told.externals = next.Refused
	}
	f.recheckLinks(ctx)
}

// recheckLinks makes the scheduler read the network card of an external interface again if the card disappeared or
// appeared. This is no repair of drift (agent/drift), because only a third party adds or removes a card: the status of
// the ExternalInterface follows it, even if drift is only reported. After the failure agent/drift leaves the object to
// the scheduler's retries, which do not notice that the card is back.
func (f *Follower) recheckLinks(ctx context.Context) {
	for _, e := range f.Network.Externals.All() {
		ref := kvscheduler.Ref{Kind: wire.KindLink, Name: e.Interface}
		status, _ := f.Scheduler.View().Status(ref)
		failed := status.Phase == kvscheduler.Failed
		fault := linux.CheckLinkUp(e.Interface)
		switch {
		case fault == nil && status.Phase == kvscheduler.InSync, fault != nil && failed:
			continue // the scheduler knows
		case failed && status.RetryAt.IsZero():
			continue // it is there, and of no use
		}
		f.Log.Info("network card of an external interface changed", "interface", e.Interface, "err", fault)
		if _, err := f.Scheduler.Resync(ctx, kvscheduler.ResyncOpt{
			Kinds: []kvscheduler.Kind{wire.KindLink, wire.KindVLAN},
		}); err != nil {
			f.Log.Warn("network card of an external interface not repaired yet", "interface", e.Interface, "err", err)
		}
		return
	}
}

// observedExternals returns the state of each external interface of this node.
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
		observed = append(observed, v1.ObservedExternal{
			Name:       e.Name,
			Generation: e.Generation,
			Reason:     shortened(reason),
		})
	}
	return observed
}

// unsettled returns the reason why an accepted external interface is not connected, or "".
func (f *Follower) unsettled(view kvscheduler.View, e nodeview.External) string {
	keys := f.Network.Externals.Objects(e.Name)
	if len(keys) == 0 {
		return fmt.Sprintf("network %q is not on this node", e.Network)
	}
	for _, key := range keys { // the others depend on the first
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

// maxReason is the largest reason that the API server accepts, in bytes.
const maxReason = 1024

// shortened returns a reason as one line of at most maxReason bytes.
func shortened(reason string) string {
	reason = strings.Join(strings.Fields(reason), " ")
	return strings.ToValidUTF8(line.Cut(reason, maxReason, ""), "")
}

// The maximum numbers of rejections that are shown at a time.
const (
	shownRejections = 8 // in a condition's message; of one node in a round of the log
	shownOfNode     = 2 // of one node in a condition's message
)

// showRejections reports the parts of other nodes' announcements that are not used: in a condition and a metric at
// once, and in the log once each after some time, because an announcement may arrive before the Node or the IPBlock
// that grants it.
func (f *Follower) showRejections(rejected []announcement.Rejection, now *followed) {
	f.rejections.Store(int64(len(rejected)))
	f.Health.Set(health.Announcements, len(rejected) == 0, summary(rejected))
	if !now.ticked {
		return
	}
	logged := make(map[announcement.Rejection]bool)
	lines := make(map[string]int) // by node: the rejections of one node do not crowd out the others
	for _, r := range rejected {
		if !now.rejected[r] {
			if lines[r.Node] == shownRejections {
				continue // a later round logs it
			}
			lines[r.Node]++
			f.Log.Warn("part of a node's announcement rejected", "node", r.Node, "network", r.Network, "part", r.What,
				"reason", r.Reason)
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

// retrying decides when refused objects are set again.
type retrying struct {
	ticked   bool        // followTick has passed
	tryAgain bool        // refused objects are set again
	backoff  tickBackoff // delays the retry as long as the inputs stay the same
	pods     uint64      // changes of pods at the last tick
}

// changed records a change that may make refused objects possible.
func (r *retrying) changed() {
	r.tryAgain = true
	r.backoff.reset()
}

// tick records that followTick has passed. pods counts the changes of pods: most refusals are because pods use an
// object.
func (r *retrying) tick(pods uint64) {
	if r.pods != pods {
		r.pods = pods
		r.backoff.reset()
	}
	r.ticked = true
	r.tryAgain = r.backoff.tick() || r.tryAgain
}

// done records that the present view was applied.
func (r *retrying) done() {
	r.ticked = false
	r.tryAgain = false
}

// tickBackoff counts the ticks between two retries of refused objects. Pauses double as long as the inputs stay the
// same. The zero value retries at the next tick.
type tickBackoff struct {
	pause int // ticks between the last retry and the next one
	left  int // remaining ticks
}

// longestPause is the longest pause in ticks: 5 minutes.
const longestPause = 30

// tick counts a tick, and reports whether to retry now.
func (b *tickBackoff) tick() bool {
	if b.left--; b.left > 0 {
		return false
	}
	b.pause = min(max(2*b.pause, 1), longestPause)
	b.left = b.pause
	return true
}

// reset makes the next tick a retry.
func (b *tickBackoff) reset() { *b = tickBackoff{} }
