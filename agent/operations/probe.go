package operations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// callTimeout is the timeout of a call to a running agent.
const callTimeout = 5 * time.Second

// Healthy returns nil if the agent at the socket is ready to connect pods.
func Healthy(ctx context.Context, socket string) error {
	reply, err := checkHealth(ctx, socket)
	if err == nil && reply.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("agent at %s is not ready; weftctl status says why", socket)
	}
	return err
}

// Alive returns nil if the agent at the socket answers. An agent that waits for its dataplane answers, because a
// restart would not help.
func Alive(ctx context.Context, socket string) error {
	_, err := checkHealth(ctx, socket)
	return err
}

func checkHealth(ctx context.Context, socket string) (*grpc_health_v1.HealthCheckResponse, error) {
	return call(ctx, socket,
		func(ctx context.Context, conn *grpc.ClientConn) (*grpc_health_v1.HealthCheckResponse, error) {
			return grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		})
}

// UnmetConditions returns the conditions of the agent at the socket that do not hold, as "NAME: REASON".
func UnmetConditions(ctx context.Context, socket string) ([]string, error) {
	reply, err := call(ctx, socket, func(ctx context.Context, conn *grpc.ClientConn) (*operatorv1.StateReply, error) {
		return operatorv1.NewOperationsClient(conn).State(ctx, &operatorv1.StateRequest{})
	})
	var unmet []string
	for _, c := range reply.GetConditions() {
		if !c.GetOk() {
			unmet = append(unmet, c.GetName()+": "+c.GetMessage())
		}
	}
	return unmet, err
}

// AttachedPods returns the pods with attachments of the agent at the socket: NAMESPACE/NAME, or the ID of a container
// without a pod.
func AttachedPods(ctx context.Context, socket string) ([]string, error) {
	reply, err := call(ctx, socket,
		func(ctx context.Context, conn *grpc.ClientConn) (*operatorv1.AttachmentsReply, error) {
			return operatorv1.NewOperationsClient(conn).Attachments(ctx, &operatorv1.AttachmentsRequest{})
		})
	var pods []string
	for _, a := range reply.GetAttachments() {
		name := a.GetAttachment().GetContainerId()
		if p := a.GetPod(); p.GetName() != "" {
			name = p.GetNamespace() + "/" + p.GetName()
		}
		pods = append(pods, name)
	}
	slices.Sort(pods)
	return slices.Compact(pods), err
}

// call calls the agent at the socket.
func call[R any](
	ctx context.Context, socket string, do func(context.Context, *grpc.ClientConn) (R, error),
) (reply R, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := weftv1.Connect(ctx, socket)
	if err == nil {
		defer conn.Close()
		reply, err = do(ctx, conn)
	}
	if err != nil {
		return reply, fmt.Errorf("agent at %s does not answer: %w", socket, err)
	}
	return reply, nil
}
