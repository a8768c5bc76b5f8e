package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/podmanager"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// drainTime is how long calls under way may take to end when the agent stops; their events are finished in any case.
const drainTime = 10 * time.Second

// serve answers the CNI plugin, operators and health probes on one socket that only root can reach. It is there as soon
// as the state is restored: until the first resync has ended, pods get "try again later" and operators see why.
func (a *Agent) serve(ctx context.Context) error {
	server := a.newServer(a.pods)
	weftv1.RegisterOperationsServer(server, &operations{
		loop: a.loop, scheduler: a.scheduler, pods: a.pods, network: a.network, devices: a.devices, health: a.health, replayer: a.replayer, vanished: a.vanished, external: a.external, paused: a.paused,
		dataplane: a.dataplane.client, counters: a.counters, settings: a.settings, started: time.Now(), stopping: ctx.Done(),
	})
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
