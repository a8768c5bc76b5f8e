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
	"github.com/weftnet/weft/agent/garp"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/measure"
	"github.com/weftnet/weft/agent/occupied"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/agent/recovery"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/agent/uplink"
	"github.com/weftnet/weft/agent/web"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/splice"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/networks"
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
	cluster   *membership
	devices   *devices

	// Events become transactions of desired values.
	loop      *eventloop.Loop
	pods      *podmanager.Manager
	network   *ipnet.Network
	external  *external.Files
	observers *observers

	backend *backend // transactions become calls of the kernel and of the dataplane
	storage *storage // the state outlives a restart

	// The machine is compared with the state.
	machine    *machine
	deletions  *deletions
	quarantine *recovery.Quarantine
	replayer   *recovery.Replayer
	drift      *drift.Monitor
}

// stateWait is how long a starting agent waits until another agent closes the state file.
const stateWait = 15 * time.Second

// New assembles an agent and restores its state. It changes nothing on the machine before Run. Close it in any case.
func New(ctx context.Context, c config.Config, log *slog.Logger) (a *Agent, err error) {
	a = &Agent{config: c, log: log, health: health.New(c.HealthFile, log)}
	a.cluster = &membership{config: &a.config}
	a.devices = &devices{config: &a.config, health: a.health, log: log}
	a.backend = &backend{config: &a.config, log: log}
	a.storage = &storage{config: &a.config, cluster: a.cluster, log: log}
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
	if a.storage.file, err = statefile.Open(wait, filepath.Join(c.StateDir, "state.db"), log); err != nil {
		return a, err
	}
	a.storage.file.OnSave = a.telemetry.metrics.Committed
	a.health.Advise(health.State)
	a.storage.monitor = statefile.NewMonitor(a.storage.file, a.health.SetErr(health.State), log)
	a.admission.monitor = a.storage.monitor
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
	a.observers.occupied.Read() // before the first pod gets an address
	if err := a.join(); err != nil {
		return a, err
	}
	a.telemetry.source = measure.Source{
		Loop:       a.loop,
		Scheduler:  a.backend.scheduler,
		Pods:       a.pods,
		Networks:   a.network.Networks,
		Dataplane:  a.backend.dataplane,
		Counters:   a.telemetry.counters,
		Quarantine: a.quarantine,
		Health:     a.health,
		Queue:      a.deletions.queue,
		Devices:    a.devices.manager,
		Member:     a.cluster.member,
	}
	if a.cluster.enforces() {
		matches := a.backend.dataplane.Client.Statistics().ACLMatches
		a.telemetry.source.Policies = measure.NewPolicyCounters(a.backend.scheduler.View, matches)
	}
	return a, nil
}

// Close closes the state file, and ends the splices of memifs.
func (a *Agent) Close() error {
	if a.backend.splices != nil {
		a.backend.splices.Close()
	}
	if a.storage.file == nil {
		return nil
	}
	return a.storage.file.Close()
}

// assembleUplink finds the network card that the dataplane will own.
func (a *Agent) assembleUplink(ctx context.Context) (err error) {
	if a.uplink, err = uplink.Open(a.config, a.health, a.log); err != nil || !a.uplink.IsConfigured() {
		return err
	}
	return a.socket.serveWhile(ctx, a.uplink.Find)
}

func (a *Agent) assembleScheduler() error {
	a.backend.scheduler = kvscheduler.New(kvscheduler.Config{
		Sources: []string{ownSource, externalSource},
		Journal: a.storage.file.Journal,
		OnDone: func(r *kvscheduler.Record) {
			a.storage.file.Transactions.Add(r)
			a.telemetry.recorder().Transaction(r)
			a.telemetry.tracer.Transaction(r)
		},
		Logger: a.log.With("component", "kvscheduler"),
	})
	a.backend.dataplane = southbound.New(a.config, a.log, a.health)
	a.backend.dataplane.InTheWay = linux.InTheWay
	a.backend.dataplane.OnReconnect = a.telemetry.metrics.Reconnected
	a.backend.dataplane.OnReplay = a.telemetry.metrics.Replayed
	a.telemetry.counters = southbound.NewCounters(a.backend.dataplane, a.health, a.log)
	a.quarantine = recovery.NewQuarantine(a.storage.file, a.health, a.log)
	overfull := new(linux.Overfull)
	if err := a.assembleDeletions(overfull); err != nil {
		return err
	}
	if a.cluster.member != nil {
		a.quarantine.Tell = a.cluster.member.Events.Quarantined
	}
	a.backend.shared = &sharedObjects{scheduler: a.backend.scheduler, health: a.health}
	a.observers = &observers{devices: a.devices, cluster: a.cluster}
	a.observers.chains = chain.New(chain.Config{
		State:   a.storage.file,
		View:    a.backend.scheduler.View,
		Objects: func(at *pod.Attachment) []string { return a.machine.objects(at) },
		Log:     a.log.With("component", "chains"),
	})
	if err := vpp.Register(a.backend.scheduler, a.backend.dataplane.Client); err != nil {
		return fmt.Errorf("kinds of the dataplane: %w", err)
	}
	options := linux.Options{
		VethName:     desired.VethObject,
		ChainChanges: a.observers.chains.Later,
		Overfull:     overfull,
		Unannounced:  (&unsent{log: a.log}).warn,
	}
	if err := linux.Register(a.backend.scheduler, options); err != nil {
		return fmt.Errorf("kinds of the kernel: %w", err)
	}
	a.backend.splices = splice.New(a.log.With("component", "splices"))
	if err := splice.Register(a.backend.scheduler, a.backend.splices); err != nil {
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
	if a.cluster.member != nil {
		a.deletions.unread.Tell = a.cluster.member.Events.Unread
		a.deletions.vanished.IsDeleted = a.cluster.member.View.IsDeleted
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
	a.backend.committer = &committer{
		scheduler:   a.backend.scheduler,
		keepUnknown: true,
		onRefused:   a.backend.shared.noteRefusal,
		onRepair:    a.telemetry.recorder().Drift,
		client:      a.backend.dataplane.Client,
	}
	a.loop = eventloop.New(eventloop.Config{
		Committer: a.backend.committer,
		Saver:     a.storage.file,
		External:  external.Codec{Scheduler: a.backend.scheduler},
		Log:       a.log.With("component", "eventloop"),
		Verify:    a.config.Verify,
		OnRecord:  a.telemetry.onEvent,
	})
	a.cluster.networks = cluster.NewNodeNetworks(a.config.Addresses.Networks, a.loop, a.log)
	a.external = external.New(a.config.External, a.loop, a.log)
	if err := a.devices.assemble(a.loop, a.cluster.member); err != nil {
		return err
	}
	if a.devices.manager != nil {
		a.deletions.vanished.IsListed = a.devices.manager.Lists
	}
	a.network, err = ipnet.New(a.networkSettings().of(&a.config))
	if err != nil {
		return fmt.Errorf("networks: %w", err)
	}
	a.admission.network = a.network
	a.machine = &machine{
		scheduler:  a.backend.scheduler,
		network:    a.network,
		devices:    a.devices.manager,
		quarantine: a.quarantine,
	}
	a.pods = podmanager.New(a.podConfig())
	a.deletions.loop = a.loop
	a.deletions.pods = a.pods
	a.assembleOwners()
	a.assembleOccupied()
	a.cluster.measurePaths(a.network, a.loop, a.health, a.log)
	a.assembleRecovery()
	register(a.loop, a.handlers())
	return nil
}

// networkSettings returns the dependencies of ipnet's configuration, except the agent's configuration.
func (a *Agent) networkSettings() networkSettings {
	return networkSettings{cluster: a.cluster, devices: a.devices, uplink: a.uplink, log: a.log}
}

// podConfig returns the configuration of podmanager.
func (a *Agent) podConfig() podmanager.Config {
	c := podmanager.Config{
		Loop:      a.loop,
		Node:      a.machine,
		Admission: a.admission,
		Chains:    a.observers.chains,
		Queue:     a.deletions.queue,
		Observe:   a.observers.observe,
		Grace:     orNone(a.config.GCGrace),
		Log:       a.log.With("component", "podmanager"),
	}
	if a.cluster.member != nil {
		c.Cluster = a.cluster.member.Inputs()
		c.Watch = a.cluster.member.Inputs()
		c.Claims = a.cluster.member.Inputs()
		c.Refiller = a.cluster.member.Inputs()
		c.RefillTime = a.config.Kubernetes.BlockWait
	}
	if a.devices.manager != nil {
		c.Devices = a.devices.manager
	}
	if a.devices.manager != nil && !a.config.Devices.Memif.Writable { // else a container may replace the socket
		c.Announcer = &garp.Announcer{
			Secret:    a.devices.manager.Secret,
			IsBridged: a.machine.isBridged,
			Log:       c.Log,
		}
	}
	return c
}

// assembleOccupied excludes the node's addresses from the allocation to pods.
func (a *Agent) assembleOccupied() {
	c := occupied.Config{
		Occupy:      func(by map[netip.Addr]string) { a.network.Networks.Occupy(networks.OfLinks, by) },
		Attachments: a.pods.Attachments,
		HostLink:    a.config.Links.Host,
		Health:      a.health,
		Log:         a.log.With("component", "ipnet"),
	}
	if a.cluster.member != nil {
		c.Tell = a.cluster.member.Events.Occupied
	}
	a.observers.occupied = occupied.New(c)
}

// assembleOwners prepares the index of the pods of objects.
func (a *Agent) assembleOwners() {
	c := owners.Config{Attachments: a.pods.Attachments, Wiring: a.network.Pods.Owners}
	if a.devices.manager != nil {
		c.Files = a.devices.manager.Objects
	}
	a.observers.owners = owners.New(c)
	a.machine.owners = a.observers.owners
}

// assembleRecovery prepares the replays of the dataplane and the search for drift, which pauses during replays.
func (a *Agent) assembleRecovery() {
	a.replayer = &recovery.Replayer{Config: recovery.Config{
		Dataplane:  a.backend.dataplane,
		Loop:       a.loop,
		Scheduler:  a.backend.scheduler,
		Pods:       a.pods,
		Wiring:     a.network.Pods,
		Objects:    a.machine.objects,
		Quarantine: a.quarantine, Health: a.health, Log: a.log,
	}}
	a.backend.dataplane.Replay = a.replayer.Replay
	a.quarantine.Attribute(a.backend.dataplane.Connection)
	a.drift = drift.New(drift.Config{
		Scheduler: a.backend.scheduler,
		Loop:      a.loop,
		Replays:   a.replayer,
		Owners:    a.observers.owners,
		Log:       a.log,
		Period:    a.config.Audit,
		Repairs:   a.config.Drift == config.DriftRepair,
	})
	a.backend.dataplane.OnDisturbed = a.drift.InterfaceChanged
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
	group.Go(func() error { return ended("scheduler", a.backend.scheduler.Run(ctx)) })
	group.Go(func() error { return ended("event loop", a.loop.Run(ctx)) })
	operator := a.operator(ctx)
	group.Go(func() error { return ended("server", a.serve(ctx, operator)) })
	group.Go(func() error { return ended("page", a.page(ctx, operator).Run(ctx)) })
	group.Go(func() error { return ended("dataplane", a.backend.dataplane.Run(ctx)) })
	group.Go(func() error { return ended("counters", a.telemetry.counters.Run(ctx)) })
	group.Go(func() error { return ended("state file", a.storage.monitor.Run(ctx)) })
	group.Go(func() error { return ended("write-behind buffers", a.storage.file.FlushSoon(ctx)) })
	group.Go(func() error {
		return ended("configuration", a.cluster.networks.FollowConfig(ctx, a.config, a.cluster.view))
	})
	group.Go(func() error { return ended("external configuration", a.external.Run(ctx)) })
	group.Go(func() error { return ended("time of last service", a.socket.keepMarking(ctx)) })
	group.Go(func() error { return ended("network", a.backend.shared.watch(ctx)) })
	group.Go(func() error { return ended("addresses of the node", a.observers.occupied.Run(ctx)) })
	group.Go(func() error {
		return ended("chains", a.observers.chains.Run(ctx, a.admission.Started, a.pods.Attachment))
	})
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
	if a.cluster.member != nil {
		group.Go(func() error { return ended("cluster", a.cluster.member.Run(ctx)) })
	}
	if a.devices.manager != nil {
		group.Go(func() error { return ended("devices", a.devices.run(ctx)) })
	}
	if a.devices.driver != nil {
		group.Go(func() error { return ended("claims", a.devices.runDriver(ctx, a.pods)) })
	}
	group.Go(func() error {
		if err := a.start(ctx); err != nil {
			return ended("start", err)
		}
		upkeep, ctx := errgroup.WithContext(ctx)
		upkeep.Go(func() error { return ended("upkeep", a.deletions.run(ctx)) })
		upkeep.Go(func() error { return ended("drift", a.drift.Run(ctx)) })
		if a.cluster.paths != nil {
			upkeep.Go(func() error { return ended("paths to other nodes", a.cluster.paths.Run(ctx)) })
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
	if err := a.backend.dataplane.Await(ctx); err != nil {
		return err
	}
	a.backend.chooseLinkTypes(ctx, a.network.Host)
	rebuilder := &recovery.Rebuilder{
		State:     a.storage.file,
		Dataplane: a.backend.dataplane.Client,
		Network:   a.network,
		Pods:      a.pods,
		Devices:   a.devices.manager,
		Networks:  a.config.Addresses.Networks,
		Log:       a.log,
	}
	isComplete, err := rebuilder.Rebuild(ctx)
	if err != nil {
		return err
	}
	a.backend.committer.keepUnknown = !isComplete
	if err := a.replayer.First(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		// The scheduler and the loop retry failed repairs; they must not prevent the start.
		a.log.Error("first resync left something to repair", "err", err)
	}
	if err := a.uplink.Settle(a.backend.scheduler.View()); err != nil {
		return err
	}
	a.cluster.networks.SetFirst(ctx, a.cluster.view())
	unlock, err := a.deletions.queue.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock the delete queue: %w", err)
	}
	defer unlock()
	a.deletions.drainLocked(ctx)
	a.deletions.vanished.Poll(ctx, a.pods.Attachments())
	a.backend.shared.report()
	a.health.Set(health.Started, true, "")
	dataplane := a.backend.dataplane.Client.Version()
	a.log.Info("agent started", "attachments", len(a.pods.Attachments()), "dataplane", dataplane)
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

// orNone converts 0, which means "none" in the configuration, to -1: other packages take 0 as "default".
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
