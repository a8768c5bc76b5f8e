// Package weftv1 is the gRPC API of the agent's socket for the CNI plugin. The services for operators are in
// operatorv1: a program registers all messages of the packages that it imports at each start, and the plugin starts
// several times for each pod.
package weftv1

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Protocol is the version of the RemoteCNI API of this build. An agent serves this version and the previous one.
const Protocol = 1

// Connect connects to the agent at the socket. If no process listens, it returns the kernel's error, which gRPC reports
// only as text. Calls fail after the agent has closed the connection: gRPC does not connect again. It uses no resolver
// and no proxy.
func Connect(ctx context.Context, socket string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	var used atomic.Bool
	dial := func(context.Context, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errors.New("the agent closed the connection")
		}
		return conn, nil
	}
	options = append(options, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
	client, err := grpc.NewClient("passthrough:///weft-agent", options...)
	if err != nil {
		_ = conn.Close()
	}
	return client, err
}
