package devicemanager

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/weftnet/weft/pod"
)

// registerTimeout is for one registration: before kubelet answers it connects to the plugin, for which it takes up to 10 s.
const registerTimeout = 15 * time.Second

// register makes the kubelet at that socket know the plugin, which must be served already: kubelet calls it at once.
func register(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: pod.Resource, Options: options(),
	})
	if err != nil {
		return fmt.Errorf("register %s at %s: %w", pod.Resource, socket, err)
	}
	return nil
}

// mostAnswer bounds kubelet's answers, in bytes: what it uses itself for those about pods.
const mostAnswer = 16 << 20

// dial prepares a connection to a socket of kubelet's, for a question or two: a lasting one would wait for long after
// kubelet was away.
func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer)))
	if err != nil {
		return nil, fmt.Errorf("connect to kubelet at %s: %w", socket, err)
	}
	return conn, nil
}
