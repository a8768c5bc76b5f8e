package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weftnet/weft/podmanager"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// drainTime is how long calls under way may take to end when the agent stops; their events are finished in any case.
const drainTime = 10 * time.Second

// serve answers the CNI plugin, operators and health probes on one socket that only root can reach. It is there as soon
// as the state is restored: until the first resync has ended, pods get "try again later" and operators see why.
func (a *Agent) serve(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(a.config.Socket), 0o755); err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	listener, err := podmanager.Listen(a.config.Socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer(append(podmanager.ServerOptions(), grpc.ChainUnaryInterceptor(a.measureRequest))...)
	weftv1.RegisterRemoteCNIServer(server, a.pods)
	weftv1.RegisterOperationsServer(server, &operations{
		loop: a.loop, scheduler: a.scheduler, pods: a.pods, network: a.network, devices: a.devices, health: a.health,
		dataplane: a.dataplane.client, started: time.Now(), stopping: ctx.Done(),
	})
	grpc_health_v1.RegisterHealthServer(server, a.health.Server)
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
