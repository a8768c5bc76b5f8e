// Package cri serves the Container Runtime Interface as far as Weft uses it: the list of sandboxes.
package cri

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is a fake container runtime.
type Runtime struct {
	runtimev1.UnimplementedRuntimeServiceServer
	Sandboxes func() *[]*runtimev1.PodSandbox
	Err       error // returned by each call; nil = none
}

// ListPodSandbox lists all sandboxes. A filter is an error, because Weft needs sandboxes in all states.
func (r *Runtime) ListPodSandbox(
	_ context.Context, req *runtimev1.ListPodSandboxRequest,
) (*runtimev1.ListPodSandboxResponse, error) {
	if req.GetFilter() != nil {
		return nil, errors.New("the filter excludes sandboxes that Weft needs")
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return &runtimev1.ListPodSandboxResponse{Items: *r.Sandboxes()}, nil
}

// Serve serves a runtime until the test ends, and returns the path of its socket.
func Serve(t testing.TB, r *Runtime) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runtime.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimev1.RegisterRuntimeServiceServer(server, r)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // ends with Stop
	}()
	t.Cleanup(func() { server.Stop(); <-ended })
	return path
}
