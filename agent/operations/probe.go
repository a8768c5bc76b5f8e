package operations

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// askLimit bounds a question to a running agent.
const askLimit = 5 * time.Second

// Healthy asks the agent at the socket whether it can wire pods; the error says why not.
func Healthy(ctx context.Context, socket string) error {
	status, err := askHealth(ctx, socket)
	if err == nil && status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("agent at %s is not ready; weftctl status says why", socket)
	}
	return err
}

// Faults asks the agent at the socket which conditions do not hold, with their reasons.
func Faults(ctx context.Context, socket string) ([]string, error) {
	reply, err := query(ctx, socket, func(ctx context.Context, conn *grpc.ClientConn) (*weftv1.StateReply, error) {
		return weftv1.NewOperationsClient(conn).State(ctx, &weftv1.StateRequest{})
	})
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, c := range reply.GetConditions() {
		if !c.GetOk() {
			faults = append(faults, c.GetName()+": "+c.GetMessage())
		}
	}
	return faults, nil
}

// Alive asks the agent at the socket whether it answers at all. One that waits for its dataplane does: to start it again
// would not help.
func Alive(ctx context.Context, socket string) error {
	_, err := askHealth(ctx, socket)
	return err
}

func askHealth(ctx context.Context, socket string) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	reply, err := query(ctx, socket, func(ctx context.Context, conn *grpc.ClientConn) (*grpc_health_v1.HealthCheckResponse, error) {
		return grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	})
	if err != nil {
		return 0, err
	}
	return reply.Status, nil
}

// query puts one question to the agent at the socket.
func query[R any](ctx context.Context, socket string, question func(context.Context, *grpc.ClientConn) (R, error)) (reply R, err error) {
	conn, err := dial(socket)
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	if reply, err = question(ctx, conn); err != nil {
		return reply, fmt.Errorf("agent at %s does not answer: %w", socket, err)
	}
	return reply, nil
}

// WiredPods asks the agent at the socket who has interfaces of it: pods as namespace/name, other containers by their id.
func WiredPods(ctx context.Context, socket string) ([]string, error) {
	reply, err := query(ctx, socket, func(ctx context.Context, conn *grpc.ClientConn) (*weftv1.AttachmentsReply, error) {
		return weftv1.NewOperationsClient(conn).Attachments(ctx, &weftv1.AttachmentsRequest{})
	})
	if err != nil {
		return nil, err
	}
	var pods []string
	for _, a := range reply.GetAttachments() {
		name := a.GetAttachment().GetContainerId()
		if p := a.GetPod(); p.GetName() != "" {
			name = p.GetNamespace() + "/" + p.GetName()
		}
		pods = append(pods, name)
	}
	slices.Sort(pods)
	return slices.Compact(pods), nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	there := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	conn, err := grpc.NewClient("passthrough:///weft-agent", grpc.WithContextDialer(there), grpc.WithNoProxy(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("agent at %s: %w", socket, err)
	}
	return conn, nil
}
