package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/weftnet/weft/agent/config"
)

// runtimeSockets are where container runtimes have their CRI sockets.
var runtimeSockets = []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"}

// runtimeTimeout is for one question to a container runtime, which takes milliseconds.
const runtimeTimeout = 5 * time.Second

// containerRuntime is the node's container runtime, asked by CRI. It is asked for nothing but its sandboxes.
type containerRuntime struct {
	socket string // a path, or as in the configuration
}

// sandboxes returns the IDs of all sandboxes, running or not; nil: the agent has no socket of a container runtime.
func (r containerRuntime) sandboxes(ctx context.Context) (map[string]bool, error) {
	socket := r.find()
	if socket == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: %w", socket, err)
	}
	defer conn.Close()
	reply, err := cri.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: list sandboxes: %w", socket, err)
	}
	all := make(map[string]bool, len(reply.GetItems()))
	for _, s := range reply.GetItems() {
		all[s.GetId()] = true
	}
	return all, nil
}

// find returns the path of the socket; "": there is none.
func (r containerRuntime) find() string {
	switch r.socket {
	case config.NoRuntime, "":
		return ""
	case config.Auto:
		for _, path := range runtimeSockets {
			if info, err := os.Stat(path); err == nil && info.Mode().Type() == os.ModeSocket {
				return path
			}
		}
		return ""
	}
	return r.socket
}
