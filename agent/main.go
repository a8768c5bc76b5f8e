package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weftnet/weft/internal/version"
)

// Main runs an agent until ctx ends, with its log on out.
func Main(ctx context.Context, config Config, out io.Writer) error {
	log := newLog(config.Log, out)
	log.Info("agent starting", "version", version.String(), "dataplane", config.Dataplane.Type)
	a, err := New(ctx, config, log)
	if err != nil {
		return err
	}
	return errors.Join(a.Run(ctx), a.Close())
}

func newLog(config Log, out io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(config.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if config.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts))
	}
	return slog.New(slog.NewTextHandler(out, opts))
}

// Healthy asks the agent at the socket whether it can wire pods; the error says why not.
func Healthy(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	conn, err := grpc.NewClient("passthrough:///weft-agent", grpc.WithContextDialer(dial), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("agent at %s: %w", socket, err)
	}
	defer conn.Close()
	reply, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("agent at %s does not answer: %w", socket, err)
	}
	if reply.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("agent at %s is not ready; weftctl status says why", socket)
	}
	return nil
}
