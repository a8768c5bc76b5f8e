package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/serving"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// drainTime is how long calls under way may take to end when the agent stops; their events are finished in any case.
const drainTime = 10 * time.Second

// serve answers the CNI plugin, operators and health probes on one socket that only root can reach. It is there as soon
// as the state is restored: until the first resync has ended, pods get "try again later" and operators see why.
func (a *Agent) serve(ctx context.Context) error {
	server := a.newServer(a.pods)
	weftv1.RegisterOperationsServer(server, operations.New(operations.Config{
		Loop: a.loop, Scheduler: a.scheduler, Pods: a.pods, Network: a.network, Devices: a.devices, Health: a.health,
		Replayer: a.replayer, Quarantine: a.quarantine, Garbage: a.vanished, External: a.external, Paused: a.paused,
		Dataplane: a.dataplane.Client, Counters: a.counters, Settings: a.settings, Stopping: ctx.Done(),
	}))
	return a.answer(ctx, server)
}

// serveWhile does what must be done before the rooms can be made, and may take long. Meanwhile the socket is there: probes
// see that the agent lives, and pods, operators and STATUS are told what it waits for.
func (a *Agent) serveWhile(ctx context.Context, do func(ctx context.Context) error) error {
	notYet := func(any, grpc.ServerStream) error { return status.Error(codes.Unavailable, a.health.Missing().Error()) }
	server := a.newServer(podmanager.New(podmanager.Config{Ready: a.health.Missing, Started: a.started}), grpc.UnknownServiceHandler(notYet))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.answer(ctx, server) })
	group.Go(func() error {
		defer cancel()
		return do(ctx)
	})
	return group.Wait()
}

func (a *Agent) newServer(pods *podmanager.Manager, more ...grpc.ServerOption) *grpc.Server {
	options := append(podmanager.ServerOptions(), grpc.ChainUnaryInterceptor(a.measureRequest))
	server := grpc.NewServer(append(options, more...)...)
	weftv1.RegisterRemoteCNIServer(server, pods)
	grpc_health_v1.RegisterHealthServer(server, a.health.Server)
	return server
}

// answer has a server answer at the agent's socket until ctx ends.
func (a *Agent) answer(ctx context.Context, server *grpc.Server) error {
	if err := os.MkdirAll(filepath.Dir(a.config.Socket), 0o755); err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	listener, err := podmanager.Listen(a.config.Socket)
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

// stop lets calls under way end, but streams (weftctl events -f) never do by themselves.
func stop(server *grpc.Server) {
	cut := time.AfterFunc(drainTime, server.Stop)
	defer cut.Stop()
	server.GracefulStop()
}

// servedEvery is the time between marks that pods are served; weft-cni takes one for good some times as long.
const servedEvery = 10 * time.Second

// started reports whether the first resync has ended.
func (a *Agent) started() bool { return a.health.Holds(health.Started) }

// markServed marks that pods are served, for weft-cni while a next agent starts.
func (a *Agent) markServed() {
	if err := serving.Mark(a.config.Socket); err != nil {
		a.log.Warn("weft-cni will not know that this agent served", "err", err)
	}
}

// goOnMarking keeps the mark of an agent that is ready from growing old.
func (a *Agent) goOnMarking(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if a.health.Missing() == nil {
			a.markServed()
		}
	}, servedEvery)
	return ctx.Err()
}

// uninstalled is a file beside the socket that says that this agent will not be started again: weft-agent uninstall
// leaves it there.
const uninstalled = "uninstalled"

// leave takes from the node what would outlive agent and dataplane, once Weft is uninstalled and wires no pod any more.
// Before, it stays: connections go on while the agent is replaced.
func (a *Agent) leave() error {
	if _, err := os.Lstat(filepath.Join(filepath.Dir(a.config.Socket), uninstalled)); err != nil || len(a.pods.Attachments()) > 0 {
		return nil //nolint:nilerr // without the file there is nothing to do
	}
	a.log.Info("uninstalled: the tables of nftables and links of VLANs are removed, an uplink of the dataplane is given back to the kernel")
	var err error
	if a.card != nil {
		if err = a.card.giveBack(); err == nil {
			err = a.card.forget(a.config.StateDir)
		}
	}
	return errors.Join(err, linux.RemoveMasquerade(), linux.RemoveTunnelNAT(), linux.RemoveVLANs(desired.ExternalAliasPrefix))
}
