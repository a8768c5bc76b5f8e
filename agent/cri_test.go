package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/weftnet/weft/agent/config"
)

// runtimeServer is a container runtime that knows its sandboxes only.
type runtimeServer struct {
	cri.UnimplementedRuntimeServiceServer
	sandboxes func() *[]*cri.PodSandbox
	err       error
}

func (s *runtimeServer) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	if req.GetFilter() != nil {
		return nil, errors.New("sandboxes that do not run are missing")
	}
	if s.err != nil {
		return nil, s.err
	}
	return &cri.ListPodSandboxResponse{Items: *s.sandboxes()}, nil
}

// serveRuntime serves a container runtime at the path that it returns.
func serveRuntime(t *testing.T, s *runtimeServer) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runtime.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // ends with Stop
	}()
	t.Cleanup(func() { server.Stop(); <-ended })
	return path
}

func TestTheContainerRuntimeIsAskedForAllSandboxes(t *testing.T) {
	all := []*cri.PodSandbox{{Id: "a", State: cri.PodSandboxState_SANDBOX_READY}, {Id: "b", State: cri.PodSandboxState_SANDBOX_NOTREADY}}
	socket := serveRuntime(t, &runtimeServer{sandboxes: func() *[]*cri.PodSandbox { return &all }})
	before := runtimeSockets
	t.Cleanup(func() { runtimeSockets = before })
	runtimeSockets = []string{filepath.Join(t.TempDir(), "away"), t.TempDir(), socket}
	for _, setting := range []string{socket, config.Auto} {
		got, err := containerRuntime{setting}.sandboxes(t.Context())
		if err != nil || fmt.Sprint(got) != "map[a:true b:true]" {
			t.Errorf("%s: %v, %v", setting, got, err)
		}
	}
	runtimeSockets = runtimeSockets[:2]
	for _, setting := range []string{config.NoRuntime, config.Auto} {
		if got, err := (containerRuntime{setting}).sandboxes(t.Context()); got != nil || err != nil {
			t.Errorf("%s: %v, %v", setting, got, err)
		}
	}
}

func TestAContainerRuntimeThatDoesNotAnswerIsAnError(t *testing.T) {
	refusing := serveRuntime(t, &runtimeServer{err: errors.New("shutting down")})
	for _, socket := range []string{refusing, filepath.Join(t.TempDir(), "away")} {
		if got, err := (containerRuntime{socket}).sandboxes(t.Context()); err == nil || got != nil || !strings.Contains(err.Error(), socket) {
			t.Errorf("%s: %v, %v", socket, got, err)
		}
	}
}
