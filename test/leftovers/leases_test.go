package leftovers_test

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/must"
)

// agent serves the list of leases.
type agent struct {
	operatorv1.UnimplementedOperationsServer
	leases []*operatorv1.Lease
}

func (a *agent) Addresses(context.Context, *operatorv1.AddressesRequest) (*operatorv1.AddressesReply, error) {
	return &operatorv1.AddressesReply{Leases: a.leases}, nil
}

func (a *agent) serve(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "a")
	listener, err := net.Listen("unix", socket)
	must.Succeed(t, err)
	server := grpc.NewServer()
	operatorv1.RegisterOperationsServer(server, a)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); must.Succeed(t, <-done) })
	return socket
}

func TestSnapshotShowsLeasesExceptCoolingOnes(t *testing.T) {
	a := &agent{leases: []*operatorv1.Lease{{Pool: "pods4", Address: "10.1.0.2", State: "internal"}}}
	places := leftovers.Places{Agent: a.serve(t)}
	before, err := leftovers.Take(t.Context(), places)
	must.Succeed(t, err)
	a.leases = append(a.leases,
		&operatorv1.Lease{Pool: "pods4", Address: "10.1.0.3", State: "used", Holder: "net/c/eth0"},
		&operatorv1.Lease{Pool: "pods4", Address: "10.1.0.4", State: "cooling"})
	after, err := leftovers.Take(t.Context(), places)
	must.Succeed(t, err)
	if lines := after.Since(before); !slices.Equal(lines, []string{"+ lease pods4 10.1.0.3 used net/c/eth0"}) {
		t.Errorf("lines %q", lines)
	}
	if !slices.Equal(after.Cooling, []string{"10.1.0.4"}) {
		t.Errorf("cooling %q", after.Cooling)
	}
}
