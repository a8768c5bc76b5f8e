// Package agent assembles Weft on a node. It is the only package that imports all others.
//
// handlers.go has the order of the handlers, commit.go connects the event loop with the scheduler, and agent.go has the
// order of start and stop.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
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
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/pathmtu"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/agent/statefile"
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
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/dra"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/deletequeue"
	"github.com/weftnet/weft/wire"
)

// Agent is the agent of one node. New assembles it, Run runs it.
type Agent struct {
	config    config.Config
	log       *slog.Logger
	health    *health.Conditions
	telemetry *telemetry
	socket    *socket
	admission *admission
	uplink    *uplink.Keeper
	member    *cluster.Member // nil without a cluster
	networks  *cluster.NodeNetworks

	// Events become transactions of desired values.
	loop      *eventloop.Loop
	pods      *podmanager.Manager
	network   *ipnet.Network
	devices   *devicemanager.Manager // nil: the node has none
	driver    *dra.Driver            // nil: claims get no devices
	external  *external.Files
	observers []func(podmanager.Outcome) // of outcomes of attachments

	// Transactions become calls of the kernel and of the dataplane.
	scheduler *kvscheduler.Scheduler
	committer *committer
	dataplane *southbound.Dataplane
	splices   *splice.Splices

	// The state outlives a restart.
	state      *statefile.File
	monitor    *statefile.Monitor
	quarantine *recovery.Quarantine
	replayer   *recovery.Replayer

	// The machine is compared with the state.
	machine   *machine
	shared    *sharedObjects
	deletions *deletions
	chains    *chain.Tracker
	drift     *drift.Monitor
	owners    *owners.Index
	occupied  *occupied.Watcher
	paths     *pathmtu.Monitor // nil: no tunnels lead to other nodes
}

// stateWait is how long a starting agent waits until another agent closes the state file.
const stateWait = 15 * time.Second

// New assembles an agent and restores its state. It changes nothing on the machine before Run. Close it in any case.
func New(ctx context.Context, c config.Config, log *slog.Logger) (a *Agent, err error) {
	a = &Agent{config: c, log: log, health: health.New(c.HealthFile, log)}
	a.admission = &admission{health: a.health, exhaustedIsUnavailable: c.Addresses.ExhaustedIsUnavailable}
	if a.telemetry, err = newTelemetry(ctx, c, log); err != nil {
		return a, err
	}
	a.socket = &socket{path: c.Socket, health: a.health, admission: a.admission, telemetry: a.telemetry, log: log}
	a.health.Served = a.socket.mark
	if len(c.ReadinessGates) > 0 {
		a.health.Require(health.Gates, "not polled yet")
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
	a.state.OnSave = a.telemetry.metrics.Committed
	a.health.Advise(health.State)
	a.monitor = statefile.NewMonitor(a.state, a.health.SetErr(health.State), log)
	a.admission.monitor = a.monitor
	if err := a.assembleUplink(ctx); err != nil {
		return a, err
	}
	if err := a.assembleCluster(ctx); err != nil {
		return a, err
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
	a.telemetry.source = measure.Source{
		Loop:       a.loop,
		Scheduler:  a.scheduler,
		Pods:       a.pods,
		Networks:   a.network.Networks,
		Dataplane:  a.dataplane,
		Counters:   a.telemetry.counters,
		Quarantine: a.quarantine,
		Health:     a.health,
		Queue:      a.deletions.queue,
		Devices:    a.devices,
		Member:     a.member,
	}
	if a.enforces() {
		a.telemetry.source.Policies = measure.NewPolicyCounters(a.scheduler.View, a.dataplane.Client.ACLMatches)
	}
	return a, nil
}

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
	return a.socket.serveWhile(ctx, a.uplink.Find)
}

func (a *Agent) assembleScheduler() error {
	a.scheduler = kvscheduler.New(kvscheduler.Config{
		Sources: []string{ownSource, externalSource},
		Journal: a.state.Journal,
		OnDone: func(r *kvscheduler.Record) {
			a.state.Transactions.Add(r)
			a.telemetry.recorder().Transaction(r)
			a.telemetry.tracer.Transaction(r)
		},
		Logger: a.log.With("component", "kvscheduler"),
	})
	a.dataplane = southbound.New(a.config, a.log, a.health)
	a.dataplane.InTheWay = linux.InTheWay
	a.dataplane.OnReconnect = a.telemetry.metrics.Reconnected
	a.dataplane.OnReplay = a.telemetry.metrics.Replayed
	a.telemetry.counters = southbound.NewCounters(a.dataplane, a.health, a.log)
	a.quarantine = recovery.NewQuarantine(a.state, a.health, a.log)
	overfull := new(linux.Overfull)
	if err := a.assembleDeletions(overfull); err != nil {
		return err
	}
	if a.member != nil {
		a.quarantine.Tell = a.member.Events.Quarantined
	}
	a.shared = &sharedObjects{scheduler: a.scheduler, health: a.health}
	a.chains = chain.New(chain.Config{
		State:   a.state,
		View:    a.scheduler.View,
		Objects: func(at *pod.Attachment) []string { return a.machine.objects(at) },
		Log:     a.log.With("component", "chains"),
	})
	a.observers = append(a.observers, a.chains.Observe)
	if err := vpp.Register(a.scheduler, a.dataplane.Client); err != nil {
		return fmt.Errorf("kinds of the dataplane: %w", err)
	}
	options := linux.Options{
		VethName:     desired.VethObject,
		ChainChanges: a.chains.Later,
		Overfull:     overfull,
		Unannounced:  (&unsent{log: a.log}).warn,
	}
	if err := linux.Register(a.scheduler, options); err != nil {
		return fmt.Errorf("kinds of the kernel: %w", err)
	}
	a.splices = splice.New(a.log.With("component", "splices"))
	if err := splice.Register(a.scheduler, a.splices); err != nil {
		return fmt.Errorf("splices of memifs: %w", err)
	}
	return nil
}

// assembleDeletions prepares the deletions without a call of the runtime.
func (a *Agent) assembleDeletions(overfull *linux.Overfull) error {
	queue, err := deletequeue.Open(filepath.Join(a.config.StateDir, "delete-queue"))
	if err != nil {
		return fmt.Errorf("delete queue: %w", err)
	}
	a.deletions = &deletions{
		queue:  queue,
		unread: drift.NewUnread(overfull, a.health, a.log),
		period: min(a.config.Audit, garbage.PollPeriod),
		log:    a.log,
	}
	a.deletions.vanished = garbage.New(a.health, a.log, a.deletions.deleteVanished)
	if a.member != nil {
		a.deletions.unread.Tell = a.member.Events.Unread
		a.deletions.vanished.IsDeleted = a.member.View.IsDeleted
		a.deletions.vanished.Sandboxes = garbage.ContainerRuntime{Socket: a.config.Kubernetes.RuntimeSocket}.Sandboxes
	}
	return nil
}

// unsent logs why addresses were not announced, once for each reason: a pod may cause any number.
type unsent struct {
	log    *slog.Logger
	logged sync.Map // texts of errors
}

func (u *unsent) warn(v wire.Announcement, err error) {
	if _, isKnown := u.logged.LoadOrStore(err.Error(), true); !isKnown {
		u.log.Warn(
			"an address is not announced to its network: neighbours may use the MAC of an earlier pod for a minute; logged once for this reason",
			"address", v.Address.String(), "netns", v.Namespace, "link", v.Link, "err", err)
	}
}

func (a *Agent) assemblePackages() (err error) {
	// until all attachments are known
	a.committer = &committer{
		scheduler:   a.scheduler,
		keepUnknown: true,
		onRefused:   a.shared.noteRefusal,
		onRepair:    a.telemetry.recorder().Drift,
		client:      a.dataplane.Client,
	}
	a.loop = eventloop.New(eventloop.Config{
		Committer: a.committer,
		Saver:     a.state,
		External:  external.Codec{Scheduler: a.scheduler},
		Log:       a.log.With("component", "eventloop"),
		Verify:    a.config.Verify,
		OnRecord:  a.telemetry.onEvent,
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
	a.admission.network = a.network
	a.machine = &machine{
		scheduler:  a.scheduler,
		network:    a.network,
		devices:    a.devices,
		quarantine: a.quarantine,
	}
	a.pods = podmanager.New(a.podConfig())
	a.deletions.loop = a.loop
	a.deletions.pods = a.pods
	a.assembleOwners()
	a.assembleOccupied()
	a.assemblePathMTU()
	a.assembleRecovery()
	register(a.loop, a.handlers())
	return nil
}

// podConfig returns the configuration of podmanager.
func (a *Agent) podConfig() podmanager.Config {
	c := podmanager.Config{
		Loop:      a.loop,
		Node:      a.machine,
		Admission: a.admission,
		Chains:    a.chains,
		Queue:     a.deletions.queue,
		Observe:   a.observe,
		Grace:     orNone(a.config.GCGrace),
		Log:       a.log.With("component", "podmanager"),
	}
	if a.member != nil {
		c.Cluster = a.member.Inputs()
		c.Refiller = a.member.Inputs()
	}
	if a.devices != nil {
		c.Devices = a.devices
	}
	return c
}

// assembleOccupied prepares the exclusion of the node's addresses from those of pods.
func (a *Agent) assembleOccupied() {
	c := occupied.Config{
		Occupy:      func(by map[netip.Addr]string) { a.network.Networks.Occupy(networks.OfLinks, by) },
		Attachments: a.pods.Attachments,
		HostLink:    a.config.Links.Host,
		Health:      a.health,
		Log:         a.log.With("component", "ipnet"),
	}
	if a.member != nil {
		c.Tell = a.member.Events.Occupied
	}
	a.occupied = occupied.New(c)
	a.observers = append(a.observers, a.occupied.Observe)
}

// assembleOwners prepares the index of the pods of objects.
func (a *Agent) assembleOwners() {
	c := owners.Config{Attachments: a.pods.Attachments, Wiring: a.network.Pods.Owners}
	if a.devices != nil {
		c.Files = a.devices.Objects
	}
	a.owners = owners.New(c)
	a.machine.owners = a.owners
	a.observers = append(a.observers, a.owners.Observe)
}

// assembleRecovery prepares the replays of the dataplane and the search for drift, which pauses during replays.
func (a *Agent) assembleRecovery() {
	a.replayer = &recovery.Replayer{Config: recovery.Config{
		Dataplane:  a.dataplane,
		Loop:       a.loop,
		Scheduler:  a.scheduler,
		Pods:       a.pods,
		Wiring:     a.network.Pods,
		Objects:    a.machine.objects,
		Quarantine: a.quarantine, Health: a.health, Log: a.log,
	}}
	a.dataplane.Replay = a.replayer.Replay
	a.quarantine.Attribute(a.dataplane.Connection)
	a.drift = drift.New(drift.Config{
		Scheduler: a.scheduler,
		Loop:      a.loop,
		Replays:   a.replayer,
		Owners:    a.owners,
		Log:       a.log,
		Period:    a.config.Audit,
		Repairs:   a.config.Drift == config.DriftRepair,
	})
	a.dataplane.OnDisturbed = a.drift.InterfaceChanged
}

// Run runs the agent until ctx ends. The dataplane continues after it returns.
func (a *Agent) Run(ctx context.Context) error {
	endpoint := &web.Endpoint{
		Address: a.config.HTTP.Listen,
		Handler: web.Routes(a.telemetry.metrics, a.health),
		Log:     a.log,
	}
	endpoint.Listen(ctx) // before the socket: the page says why pods are not served yet
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return ended("metrics and health", endpoint.Run(ctx)) })
	group.Go(func() error { return ended("scheduler", a.scheduler.Run(ctx)) })
	group.Go(func() error { return ended("event loop", a.loop.Run(ctx)) })
	operator := a.operator(ctx)
	group.Go(func() error { return ended("server", a.serve(ctx, operator)) })
	group.Go(func() error { return ended("page", a.page(ctx, operator).Run(ctx)) })
	group.Go(func() error { return ended("dataplane", a.dataplane.Run(ctx)) })
	group.Go(func() error { return ended("counters", a.telemetry.counters.Run(ctx)) })
	group.Go(func() error { return ended("state file", a.monitor.Run(ctx)) })
	group.Go(func() error { return ended("write-behind buffers", a.state.FlushSoon(ctx)) })
	group.Go(func() error { return ended("configuration", a.networks.FollowConfig(ctx, a.config, a.view)) })
	group.Go(func() error { return ended("external configuration", a.external.Run(ctx)) })
	group.Go(func() error { return ended("time of last service", a.socket.keepMarking(ctx)) })
	group.Go(func() error { return ended("network", a.shared.watch(ctx)) })
	group.Go(func() error { return ended("addresses of the node", a.occupied.Run(ctx)) })
	group.Go(func() error { return ended("chains", a.chains.Run(ctx, a.admission.Started, a.pods.Attachment)) })
	group.Go(func() error {
		return ended("profiles", debug.Serve(ctx, filepath.Join(filepath.Dir(a.config.Socket), debug.Socket), a.log))
	})
	if a.telemetry.tracer != nil {
		group.Go(func() error { return ended("tracing", a.telemetry.tracer.Run(ctx)) })
	}
	if len(a.config.ReadinessGates) > 0 {
		group.Go(func() error {
			return ended("readiness gates",
				health.NewGates(a.config.ReadinessGates, a.health, health.GatesPoll).Run(ctx))
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
		upkeep.Go(func() error { return ended("upkeep", a.deletions.run(ctx)) })
		upkeep.Go(func() error { return ended("drift", a.drift.Run(ctx)) })
		if a.paths != nil {
			upkeep.Go(func() error { return ended("paths to other nodes", a.paths.Run(ctx)) })
		}
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
		State:     a.state,
		Dataplane: a.dataplane.Client,
		Network:   a.network,
		Pods:      a.pods,
		Devices:   a.devices,
		Networks:  a.config.Addresses.Networks,
		Log:       a.log,
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
	unlock, err := a.deletions.queue.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock the delete queue: %w", err)
	}
	defer unlock()
	a.deletions.drainLocked(ctx)
	a.deletions.vanished.Poll(ctx, a.pods.Attachments())
	a.shared.report()
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
	a.telemetry.logLevel = level
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

// orNone converts 0, which means "none" in the configuration, to -1: other packages take 0 as "default".
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
