// Package agent assembles Weft on a node. It is the only package that imports all others.
//
// handlers.go has the order of the handlers, commit.go connects the event loop with the scheduler, and agent.go has the order of start
// and stop.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/chain"
	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/debug"
	"github.com/weftnet/weft/agent/drift"
	"github.com/weftnet/weft/agent/external"
	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/measure"
	"github.com/weftnet/weft/agent/occupied"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/agent/tracing"
	"github.com/weftnet/weft/agent/uplink"
	"github.com/weftnet/weft/agent/web"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/devicemanager"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/metrics"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/deletequeue"
	"github.com/weftnet/weft/wire"
)

// Agent is the agent of one node. New assembles it, Run runs it.
type Agent struct {
	config config.Config
	log    *slog.Logger

	state     *statefile.File
	queue     *deletequeue.Queue
	scheduler *kvscheduler.Scheduler
	committer *committer
	dataplane *southbound.Dataplane
	splices   *splice.Splices
	loop      *eventloop.Loop
	pods      *podmanager.Manager
	network   *ipnet.Network
	devices   *devicemanager.Manager // nil: the node has none
	driver    *dra.Driver            // nil: claims get no devices

	member   *cluster.Member // nil without a cluster
	uplink   *uplink.Keeper
	networks *cluster.NodeNetworks

	observers  []func(podmanager.Outcome) // of outcomes of attachments
	rebuildErr atomic.Pointer[string]     // why the scheduler refused all desired values; nil if it did not
	health     *health.Conditions
	quarantine *recovery.Quarantine
	monitor    *statefile.Monitor
	external   *external.Files
	vanished   *garbage.Collector
	chains     *chain.Tracker
	drift      *drift.Monitor
	unread     *drift.Unread
	occupied   *occupied.Watcher
	unsent     sync.Map           // texts of errors of announcements that were logged
	replayer   *recovery.Replayer // used by start, then by the southbound

	logLevel *operations.LogLevel
	metrics  *metrics.Metrics
	tracer   *tracing.Tracer // nil: no spans
	source   measure.Source
	counters *southbound.Counters
}

// stateWait is how long a starting agent waits until another agent closes the state file.
const stateWait = 15 * time.Second

// New assembles an agent and restores its state. It changes nothing on the machine before Run. Close it in any case.
func New(ctx context.Context, c config.Config, log *slog.Logger) (a *Agent, err error) {
	a = &Agent{config: c, log: log, logLevel: operations.NewLogLevel(c.Log.Level), health: health.New(c.HealthFile, log)}
	a.health.Served = a.markServed
	if len(c.ReadinessGates) > 0 {
		a.health.Require(health.Gates, "not polled yet")
	}
	a.metrics = metrics.New(metrics.Config{Version: version.String(), Kinds: wire.Kinds(), Read: func(ctx context.Context) metrics.State { return a.source.Read(ctx) }, Log: log.With("component", "metrics")})
	if err := a.assembleTracing(ctx); err != nil {
		return a, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	wait, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	if a.state, err = statefile.Open(wait, filepath.Join(c.StateDir, "state.db"), log); err != nil {
		return a, err
	}
	a.state.OnSave = a.metrics.Committed
	a.health.Advise(health.State)
	a.monitor = statefile.NewMonitor(a.state, a.health.SetErr(health.State), log)
	if err := a.assembleUplink(ctx); err != nil {
		return a, err
	}
	if err := a.assembleCluster(ctx); err != nil {
		return a, err
	}
	if a.queue, err = deletequeue.Open(filepath.Join(c.StateDir, "delete-queue")); err != nil {
		return a, fmt.Errorf("delete queue: %w", err)
	}
	if err := a.assembleScheduler(); err != nil {
		return a, err
	}
	if err := a.assemblePackages(); err != nil {
		return a, err
	}
	if err := a.restore(); err != nil {
		return a, err
	}
	a.occupied.Read() // before the first pod gets an address
	if err := a.join(); err != nil {
		return a, err
	}
	a.source = measure.Source{
		Loop: a.loop, Scheduler: a.scheduler, Pods: a.pods, Networks: a.network.Networks, Dataplane: a.dataplane, Counters: a.counters,
		Quarantine: a.quarantine, Health: a.health, Queue: a.queue, Devices: a.devices, Member: a.member,
	}
	if a.explainer() != nil {
		a.source.Policies = measure.NewPolicies(a.scheduler.View, a.dataplane.Client.ACLMatches)
	}
	return a, nil
}

// assembleTracing prepares the export of spans, if it is configured.
func (a *Agent) assembleTracing(ctx context.Context) (err error) {
	of := a.config.Tracing
	if of.Endpoint == "" {
		return nil
	}
	a.tracer, err = tracing.New(ctx, tracing.Config{
		Endpoint: of.Endpoint, Protocol: of.Protocol, Sampling: of.Sampling, Version: version.String(), Node: a.config.Kubernetes.Node,
		Count: a.metrics.Spans, Log: a.log.With("component", "tracing"),
	})
	return err
}

// onRecord observes a handled event.
func (a *Agent) onRecord(ctx context.Context, r eventloop.Record) {
	a.recorder().Event(r)
	a.tracer.Event(ctx, r)
}

func (a *Agent) recorder() measure.Recorder { return measure.Recorder{Metrics: a.metrics} }

// Close closes the state file, and ends the splices of memifs.
func (a *Agent) Close() error {
	if a.splices != nil {
		a.splices.Close()
	}
	if a.state == nil {
		return nil
	}
	return a.state.Close()
}

// assembleUplink finds the network card that the dataplane will own.
func (a *Agent) assembleUplink(ctx context.Context) (err error) {
	if a.uplink, err = uplink.Open(a.config, a.health, a.log); err != nil || !a.uplink.IsConfigured() {
		return err
	}
	return a.serveWhile(ctx, a.uplink.Find)
}

func (a *Agent) assembleScheduler() error {
	a.scheduler = kvscheduler.New(kvscheduler.Config{
		Sources: []string{ownSource, externalSource},
		Journal: a.state.Journal,
		OnDone: func(r *kvscheduler.Record) {
			a.state.Transactions.Add(r)
			a.recorder().Transaction(r)
			a.tracer.Transaction(r)
		},
		Logger: a.log.With("component", "kvscheduler"),
	})
	a.dataplane = southbound.New(a.config, a.log, a.health)
	a.dataplane.OnReconnect, a.dataplane.OnReplay = a.metrics.Reconnected, a.metrics.Replayed
	a.counters = southbound.NewCounters(a.dataplane, a.health, a.log)
	a.quarantine = recovery.NewQuarantine(a.state, a.health, a.log)
	a.vanished = garbage.New(a.health, a.log, a.deleteVanished)
	overfull := new(linux.Overfull)
	a.unread = drift.NewUnread(overfull, a.health, a.log)
	if a.member != nil {
		a.unread.Tell = a.member.Events.Unread
		a.quarantine.Tell = a.member.Events.Quarantined
		a.vanished.IsDeleted, a.vanished.Sandboxes = a.member.View.IsDeleted, garbage.ContainerRuntime{Socket: a.config.Kubernetes.RuntimeSocket}.Sandboxes
	}
	a.chains = chain.New(chain.Config{State: a.state, View: a.scheduler.View, Objects: a.objects, Log: a.log.With("component", "chains")})
	a.observers = append(a.observers, a.chains.Observe)
	if err := vpp.Register(a.scheduler, a.dataplane.Client); err != nil {
		return fmt.Errorf("kinds of the dataplane: %w", err)
	}
	options := linux.Options{VethName: desired.VethObject, ChainChanges: a.chains.Later, Overfull: overfull, Unannounced: a.unannounced}
	if err := linux.Register(a.scheduler, options); err != nil {
		return fmt.Errorf("kinds of the kernel: %w", err)
	}
	a.splices = splice.New(a.log.With("component", "splices"))
	if err := splice.Register(a.scheduler, a.splices); err != nil {
		return fmt.Errorf("splices of memifs: %w", err)
	}
	return nil
}

// unannounced logs why an address was not announced, once for each reason: a pod may cause any number.
func (a *Agent) unannounced(v wire.Announcement, err error) {
	if _, isKnown := a.unsent.LoadOrStore(err.Error(), true); !isKnown {
		a.log.Warn("an address is not announced to its network: neighbours may use the MAC of an earlier pod for a minute; logged once for this reason",
			"address", v.Address.String(), "netns", v.Namespace, "link", v.Link, "err", err)
	}
}

func (a *Agent) assemblePackages() (err error) {
	a.committer = &committer{scheduler: a.scheduler, keepUnknown: true, onRefused: a.noteRefusedRebuild, onRepair: a.recorder().Drift, client: a.dataplane.Client} // until all attachments are known
	a.loop = eventloop.New(eventloop.Config{
		Committer: a.committer,
		Saver:     a.state,
		External:  external.Codec{Scheduler: a.scheduler},
		Log:       a.log.With("component", "eventloop"),
		Verify:    a.config.Verify,
		OnRecord:  a.onRecord,
	})
	a.networks = cluster.NewNodeNetworks(a.config.Addresses.Networks, a.loop, a.log)
	a.external = external.New(a.config.External, a.loop, a.log)
	if err := a.assembleDevices(); err != nil {
		return err
	}
	a.network, err = ipnet.New(a.networkConfig(&a.config))
	if err != nil {
		return fmt.Errorf("networks: %w", err)
	}
	a.pods = podmanager.New(podmanager.Config{
		Loop:       a.loop,
		Planner:    a.loop,
		Inspect:    inspect,
		LinkExists: linkExists,

		Annotations: a.annotations(),
		Selected:    a.selected(),
		Learn:       a.learn(),
		Forget:      a.forget(),
		Grants:      a.grants(),
		Claims:      a.claimed(),
		Refillable:  a.refillable,
		Refill:      a.refill,
		Exhausted:   a.exhausted,
		Paused:      a.paused,
		Observe:     a.observe,
		Verify:      a.verify,
		Later:       a.chains.End,
		IsGone:      garbage.IsGone,
		Void:        a.void,
		Grace:       orNone(a.config.GCGrace),
		Ready:       a.health.Missing,
		Started:     a.started,
		Log:         a.log.With("component", "podmanager"),
	})
	a.assembleOccupied()
	a.assembleRecovery()
	register(a.loop, a.handlers())
	return nil
}

// assembleOccupied prepares the exclusion of the node's addresses from those of pods.
func (a *Agent) assembleOccupied() {
	c := occupied.Config{
		Occupy:      func(by map[netip.Addr]string) { a.network.Networks.Occupy(networks.OfLinks, by) },
		Attachments: a.pods.Attachments, HostLink: a.config.Links.Host, Health: a.health, Log: a.log.With("component", "ipnet"),
	}
	if a.member != nil {
		c.Tell = a.member.Events.Occupied
	}
	a.occupied = occupied.New(c)
	a.observers = append(a.observers, a.occupied.Observe)
}

// assembleRecovery prepares the replays of the dataplane and the search for drift, which pauses during replays.
func (a *Agent) assembleRecovery() {
	a.replayer = &recovery.Replayer{Config: recovery.Config{
		Dataplane: a.dataplane, Loop: a.loop, Scheduler: a.scheduler, Pods: a.pods, Wiring: a.network.Pods, Objects: a.objects,
		Quarantine: a.quarantine, Health: a.health, Log: a.log,
	}}
	a.dataplane.Replay = a.replayer.Replay
	a.quarantine.Attribute(a.dataplane.Connection)
	a.drift = drift.New(drift.Config{
		Scheduler: a.scheduler, Loop: a.loop, Replays: a.replayer, Log: a.log, Period: a.config.Audit, Repairs: a.config.Drift == config.DriftRepair,
	})
	a.dataplane.OnDisturbed = a.drift.InterfaceChanged
}

// networkConfig returns the configuration of ipnet, from a configuration of the agent and the machine.
func (a *Agent) networkConfig(c *config.Config) ipnet.Config {
	m := c.Devices.Memif
	var node cluster.Uplink
	pools := c.Addresses.Pools
	if a.member != nil {
		node, pools = a.member.Uplink, slices.Concat(pools, a.member.Ranges)
	}
	return ipnet.Config{
		Networks: networks.Config{
			Pools:          ipamPools(pools),
			NamespacePools: c.Addresses.NamespacePools,
			NodePools:      c.Addresses.NodePools,
			CoolDown:       orNone(c.Addresses.CoolDown),
			MTU:            c.Pods.MTU,
			Blocks:         a.member != nil,
			Tunnel:         a.tunnelType(c),
			UplinkMTU:      node.MTU,
			Log:            a.log.With("component", "ipnet"),
		},
		Mesh: mesh.Config{
			LinkTypes:     linkTypes(c, ""),
			HostLink:      c.Links.Host,
			MaxSegment:    maxSegment(c),
			TunnelLink:    c.Links.Tunnel,
			IPMasq:        c.Masquerade.Enabled,
			IPMasqExclude: c.Masquerade.Exclude,
			Uplink:        node.Name,
			Card:          a.uplink.Card(),
		},
		Pods: attach.Config{
			PodQueues:         c.Pods.Queues,
			MaxPodQueues:      c.Pods.MaxQueues,
			AllowIPForwarding: c.Pods.AllowIPForwarding,
			NoDefaultRoutes:   !c.Pods.IncludeDefaultRoutes,
			DelegatedCIDRs:    c.Addresses.DelegatedCIDRs,
			Memif:             attach.MemifLimits{RingSize: m.MaxRingSize, BufferSize: m.MaxBufferSize, Queues: m.MaxQueues},
			Secret:            a.secret(),
			Policies:          a.policies(),
		},
	}
}

// Run runs the agent until ctx ends. The dataplane continues after it returns.
func (a *Agent) Run(ctx context.Context) error {
	endpoint := &web.Endpoint{Address: a.config.HTTP.Listen, Handler: web.Routes(a.metrics, a.health), Log: a.log}
	endpoint.Listen(ctx) // before the socket: the page says why pods are not served yet
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return ended("metrics and health", endpoint.Run(ctx)) })
	group.Go(func() error { return ended("scheduler", a.scheduler.Run(ctx)) })
	group.Go(func() error { return ended("event loop", a.loop.Run(ctx)) })
	operator := a.operator(ctx)
	group.Go(func() error { return ended("server", a.serve(ctx, operator)) })
	group.Go(func() error { return ended("page", a.page(ctx, operator).Run(ctx)) })
	group.Go(func() error { return ended("dataplane", a.dataplane.Run(ctx)) })
	group.Go(func() error { return ended("counters", a.counters.Run(ctx)) })
	group.Go(func() error { return ended("state file", a.monitor.Run(ctx)) })
	group.Go(func() error { return ended("write-behind buffers", a.state.FlushSoon(ctx)) })
	group.Go(func() error { return ended("configuration", a.networks.FollowConfig(ctx, a.config, a.view)) })
	group.Go(func() error { return ended("external configuration", a.external.Run(ctx)) })
	group.Go(func() error { return ended("time of last service", a.keepMarking(ctx)) })
	group.Go(func() error { return ended("network", a.watchShared(ctx)) })
	group.Go(func() error { return ended("addresses of the node", a.occupied.Run(ctx)) })
	group.Go(func() error { return ended("chains", a.chains.Run(ctx, a.started, a.pods.Attachment)) })
	group.Go(func() error {
		return ended("profiles", debug.Serve(ctx, filepath.Join(filepath.Dir(a.config.Socket), debug.Socket), a.log))
	})
	if a.tracer != nil {
		group.Go(func() error { return ended("tracing", a.tracer.Run(ctx)) })
	}
	if len(a.config.ReadinessGates) > 0 {
		group.Go(func() error {
			return ended("readiness gates", health.NewGates(a.config.ReadinessGates, a.health, health.GatesPoll).Run(ctx))
		})
	}
	if a.member != nil {
		group.Go(func() error { return ended("cluster", a.member.Run(ctx)) })
	}
	if a.devices != nil {
		group.Go(func() error { return ended("devices", a.runDevices(ctx)) })
	}
	if a.driver != nil {
		group.Go(func() error { return ended("claims", a.runDriver(ctx)) })
	}
	group.Go(func() error {
		if err := a.start(ctx); err != nil {
			return ended("start", err)
		}
		upkeep, ctx := errgroup.WithContext(ctx)
		upkeep.Go(func() error { return ended("upkeep", a.upkeep(ctx)) })
		upkeep.Go(func() error { return ended("drift", a.drift.Run(ctx)) })
		return upkeep.Wait()
	})
	err := group.Wait()
	a.health.Set(health.Started, false, "stopped")
	err = errors.Join(err, a.leave())
	a.log.Info("agent stopped")
	return err
}

// start rebuilds a lost state, resyncs the machine with the state, handles queued deletions, and then accepts new pods.
func (a *Agent) start(ctx context.Context) error {
	if err := a.uplink.Take(); err != nil {
		return err
	}
	if err := a.dataplane.Await(ctx); err != nil {
		return err
	}
	a.chooseLinkTypes(ctx)
	rebuilder := &recovery.Rebuilder{
		State: a.state, Dataplane: a.dataplane.Client, Network: a.network, Pods: a.pods, Devices: a.devices, Networks: a.config.Addresses.Networks, Log: a.log,
	}
	isComplete, err := rebuilder.Rebuild(ctx)
	if err != nil {
		return err
	}
	a.committer.keepUnknown = !isComplete
	if err := a.replayer.First(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		// The scheduler and the loop retry failed repairs; they must not prevent the start.
		a.log.Error("first resync left something to repair", "err", err)
	}
	if err := a.uplink.Settle(a.scheduler.View()); err != nil {
		return err
	}
	a.networks.SetFirst(ctx, a.view())
	unlock, err := a.queue.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock the delete queue: %w", err)
	}
	defer unlock()
	a.drainLocked(ctx)
	a.vanished.Poll(ctx, a.pods.Attachments())
	a.reportShared()
	a.health.Set(health.Started, true, "")
	a.log.Info("agent started", "attachments", len(a.pods.Attachments()), "dataplane", a.dataplane.Client.Version())
	return nil
}

// ended returns nil for a part that ended because ctx did.
func ended(part string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("%s: %w", part, err)
}

// Main runs an agent until ctx ends, with its log on out.
func Main(ctx context.Context, c config.Config, out io.Writer) error {
	level := operations.NewLogLevel(c.Log.Level)
	log := newLog(c.Log.Format, level, out)
	log.Info("agent starting", "version", version.String(), "dataplane", c.Dataplane.Type)
	if err := southbound.MakeWritable(southbound.Sysctls); err != nil {
		log.Warn("sysctls of the kernel are read-only", "err", err)
	}
	a, err := New(ctx, c, log)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		log.Info("agent stopped before it had started")
		return nil
	case err != nil:
		return err
	}
	a.logLevel = level
	return errors.Join(a.Run(ctx), a.Close())
}

func newLog(format string, level slog.Leveler, out io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: line.Attr}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts))
	}
	return slog.New(slog.NewTextHandler(out, opts))
}

// observe passes outcomes of attachments to all observers. Observers must not block; they are registered before Run.
func (a *Agent) observe(o podmanager.Outcome) {
	for _, tell := range a.observers {
		tell(o)
	}
}

// inspect identifies the network namespace at a path.
func inspect(_ context.Context, path string) (pod.Netns, error) {
	inode, device, err := linux.InspectNamespace(path)
	return pod.Netns{Path: path, Inode: inode, Device: device}, err
}

// linkExists looks for a link in a sandbox, and returns its alias.
func linkExists(_ context.Context, netns pod.Netns, name string) (alias string, exists bool, err error) {
	return linux.LinkAlias(netns.Path, name)
}

// verify reads the objects of an attachment and returns the differences.
func (a *Agent) verify(ctx context.Context, at *pod.Attachment) ([]podmanager.Difference, error) {
	if err := a.quarantine.ReasonOf(at.Key); err != nil {
		return nil, err
	}
	keys := a.objects(at)
	refs := make([]kvscheduler.Ref, len(keys))
	for i, key := range keys {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			return nil, err
		}
		refs[i] = ref
	}
	found, err := a.scheduler.Verify(ctx, refs...)
	if err != nil {
		return nil, err
	}
	var differences []podmanager.Difference
	for _, d := range found {
		differences = append(differences, drift.Differences(d)...)
	}
	return differences, nil
}

// objects lists the keys of all objects that an attachment needs, including its devices.
func (a *Agent) objects(at *pod.Attachment) []string {
	keys := a.network.Pods.Objects(at)
	if a.devices == nil {
		return keys
	}
	for _, i := range at.Interfaces {
		if i.Memif != nil {
			keys = append(keys, a.devices.Objects(i.Memif.Allocation)...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// void removes a queued DEL, because the same attachment is added again.
func (a *Agent) void(ctx context.Context, key pod.Key) error {
	return a.queue.Remove(ctx, deletequeue.Key{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName})
}

func ipamPools(pools []config.Pool) []ipam.Pool {
	out := make([]ipam.Pool, len(pools))
	for i, p := range pools {
		out[i] = ipam.Pool{Name: p.Name, Prefix: p.Prefix, Disabled: p.Disabled, Namespaces: p.Namespaces}
	}
	return out
}

// orNone converts 0, which means "none" in the configuration, to -1: other packages take 0 as "default".
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
