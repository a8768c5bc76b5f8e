package agent

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/weftnet/weft/internal/unixsocket"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/serving"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// drainTime is how long calls in progress may take to end when the agent stops. Their events are completed in any case.
const drainTime = 10 * time.Second

// markPeriod is the time between marks that pods are served. weft-cni accepts a mark for a multiple of this time.
const markPeriod = 10 * time.Second

// socket is the one socket that the CNI plugin, operators and health probes use. Only root can open it.
type socket struct {
	path      string
	health    *health.Conditions
	admission *admission
	telemetry *telemetry
	log       *slog.Logger
}

// serveWhile runs a slow step of the assembly. Meanwhile it serves the socket: liveness probes succeed, and pods,
// operators and STATUS get the reason why the agent waits.
func (s *socket) serveWhile(ctx context.Context, do func(ctx context.Context) error) error {
	unavailable := func(any, grpc.ServerStream) error {
		return status.Error(codes.Unavailable, s.health.Missing().Error())
	}
	server := s.newServer(podmanager.New(podmanager.Config{Admission: s.admission}),
		grpc.UnknownServiceHandler(unavailable))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.listenAndServe(ctx, server) })
	group.Go(func() error {
		defer cancel()
		return do(ctx)
	})
	return group.Wait()
}

// newServer returns a server with the services of pods and of health.
func (s *socket) newServer(pods *podmanager.Manager, more ...grpc.ServerOption) *grpc.Server {
	options := append(podmanager.ServerOptions(), grpc.ChainUnaryInterceptor(s.telemetry.recorder().Request))
	if s.telemetry.tracer != nil {
		options = append(options, grpc.ChainUnaryInterceptor(s.telemetry.tracer.Request))
	}
	server := grpc.NewServer(append(options, more...)...)
	weftv1.RegisterRemoteCNIServer(server, pods)
	grpc_health_v1.RegisterHealthServer(server, s.health.Server)
	return server
}

// listenAndServe serves until ctx ends.
func (s *socket) listenAndServe(ctx context.Context, server *grpc.Server) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	listener, err := unixsocket.Listen(ctx, "unix", s.path)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		s.stop(server)
	}()
	err = server.Serve(listener)
	if ctx.Err() == nil {
		return err
	}
	<-stopped
	return nil
}

// stop lets calls in progress end for drainTime; streams (weftctl events -f) never end by themselves.
func (s *socket) stop(server *grpc.Server) {
	cut := time.AfterFunc(drainTime, func() {
		s.log.Warn("calls in progress cut off", "after", drainTime)
		server.Stop()
	})
	defer cut.Stop()
	server.GracefulStop()
}

// mark records that pods are served now, for weft-cni while the next agent starts.
func (s *socket) mark() {
	if err := serving.Mark(s.path); err != nil {
		s.log.Warn("time of last service not written", "err", err)
	}
}

// keepMarking renews the mark while the agent is ready.
func (s *socket) keepMarking(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(context.Context) {
		if s.health.Missing() == nil {
			s.mark()
		}
	}, markPeriod)
	return ctx.Err()
}
