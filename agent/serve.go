package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/inventory"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/agent/packets"
	"github.com/weftnet/weft/agent/planning"
	"github.com/weftnet/weft/agent/ui"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/unixsocket"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/serving"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// drainTime is how long calls in progress may take to end when the agent stops. Their events are completed in any case.
const drainTime = 10 * time.Second

// serve serves the CNI plugin, operators and health probes on one socket that only root can open. It serves as soon as the state is
// restored: until the first resync has ended, ADD fails with "try again later" and operators see the reason.
func (a *Agent) serve(ctx context.Context, operator *operations.Server) error {
	server := a.newServer(a.pods)
	operatorv1.RegisterOperationsServer(server, operator)
	operatorv1.RegisterDataplaneServer(server, &inventory.Server{Client: a.dataplane.Client, Pods: a.pods, Counters: a.counters})
	operatorv1.RegisterPlanningServer(server, planning.New(planning.Config{
		Scheduler: a.scheduler, Attachments: a.pods.Attachments, Objects: a.objects, Down: a.dataplane.Client.Health,
		Loop: a.loop, Plan: a.committer.Plan, Served: a.pods.WouldServe, PlanPod: a.pods.Plan, Settings: a.settings, NewValues: a.newValues,
		Networks: func() []string { return slices.Sorted(maps.Keys(a.network.Networks.Customs())) },
	}))
	operatorv1.RegisterPacketsServer(server, packets.New(packets.Config{
		Attachments: a.pods.Attachments, Dataplane: a.dataplane.Client, Log: a.log.With("component", "packets"), Stopping: ctx.Done(),
	}))
	return a.listenAndServe(ctx, server)
}

// operator returns the service for operators until ctx ends.
func (a *Agent) operator(ctx context.Context) *operations.Server {
	return operations.New(operations.Config{
		Loop: a.loop, Scheduler: a.scheduler, Pods: a.pods, Network: a.network, Devices: a.devices, Health: a.health,
		Replayer: a.replayer, Quarantine: a.quarantine, Garbage: a.vanished, External: a.external, Paused: a.paused,
		Dataplane: a.dataplane.Client, Counters: a.counters, Settings: a.settings, Stopping: ctx.Done(),
		Drift: a.drift, Unread: a.unread, Splices: a.splices, LogLevel: a.logLevel, Policies: a.explainer(),
	})
}

// page returns the server of the operator's page.
func (a *Agent) page(ctx context.Context, operator *operations.Server) *ui.Server {
	c := a.config.UI
	s := &ui.Server{
		Socket: c.Socket, Listen: c.Listen, TokenFile: c.TokenFile, Log: a.log.With("component", "ui"),
		Handler: ui.Handler(&ui.API{Operations: operator, Stopping: ctx.Done()}),
	}
	if s.Socket == config.NoPage {
		s.Socket = ""
	}
	return s
}

// serveWhile runs a slow step of the assembly. Meanwhile it serves the socket: liveness probes succeed, and pods, operators and STATUS get
// what the agent waits for.
func (a *Agent) serveWhile(ctx context.Context, do func(ctx context.Context) error) error {
	unavailable := func(any, grpc.ServerStream) error { return status.Error(codes.Unavailable, a.health.Missing().Error()) }
	server := a.newServer(podmanager.New(podmanager.Config{Ready: a.health.Missing, Started: a.started}), grpc.UnknownServiceHandler(unavailable))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.listenAndServe(ctx, server) })
	group.Go(func() error {
		defer cancel()
		return do(ctx)
	})
	return group.Wait()
}

func (a *Agent) newServer(pods *podmanager.Manager, more ...grpc.ServerOption) *grpc.Server {
	options := append(podmanager.ServerOptions(), grpc.ChainUnaryInterceptor(a.recorder().Request))
	if a.tracer != nil {
		options = append(options, grpc.ChainUnaryInterceptor(a.tracer.Request))
	}
	server := grpc.NewServer(append(options, more...)...)
	weftv1.RegisterRemoteCNIServer(server, pods)
	grpc_health_v1.RegisterHealthServer(server, a.health.Server)
	return server
}

// listenAndServe serves on the agent's socket until ctx ends.
func (a *Agent) listenAndServe(ctx context.Context, server *grpc.Server) error {
	if err := os.MkdirAll(filepath.Dir(a.config.Socket), 0o755); err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	listener, err := unixsocket.Listen(ctx, "unix", a.config.Socket)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		stop(server)
	}()
	err = server.Serve(listener)
	if ctx.Err() == nil {
		return err
	}
	<-stopped
	return nil
}

// stop lets calls in progress end for drainTime; streams (weftctl events -f) never end by themselves.
func stop(server *grpc.Server) {
	cut := time.AfterFunc(drainTime, server.Stop)
	defer cut.Stop()
	server.GracefulStop()
}

// markPeriod is the time between marks that pods are served. weft-cni accepts a mark for a multiple of this time.
const markPeriod = 10 * time.Second

// started reports whether the first resync has ended.
func (a *Agent) started() bool { return a.health.Holds(health.Started) }

// markServed records that pods are served now, for weft-cni while the next agent starts.
func (a *Agent) markServed() {
	if err := serving.Mark(a.config.Socket); err != nil {
		a.log.Warn("time of last service not written", "err", err)
	}
}

// keepMarking renews the mark while the agent is ready.
func (a *Agent) keepMarking(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if a.health.Missing() == nil {
			a.markServed()
		}
	}, markPeriod)
	return ctx.Err()
}

// uninstalled is the name of a file beside the socket that weft-agent uninstall creates: this agent will not start again.
const uninstalled = "uninstalled"

// leave removes what would outlive agent and dataplane, if Weft is uninstalled and no pod is attached. Otherwise it stays, because
// connections continue while the agent is replaced.
func (a *Agent) leave() error {
	if _, err := os.Lstat(filepath.Join(filepath.Dir(a.config.Socket), uninstalled)); err != nil || len(a.pods.Attachments()) > 0 {
		return nil //nolint:nilerr // without the file there is nothing to do
	}
	a.log.Info("uninstalled: removing nftables tables and VLAN links, returning the uplink to the kernel")
	return errors.Join(a.uplink.Return(), linux.RemoveMasquerade(), linux.RemoveTunnelNAT(), linux.RemoveVLANs(desired.ExternalAliasPrefix))
}
