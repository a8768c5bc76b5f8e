package node

import (
	"context"
	"fmt"
	"io"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// Runtime executes CNI plugins through libcni, as a container runtime does.
type Runtime struct {
	cni  *libcni.CNIConfig
	list *libcni.NetworkConfigList
}

// NewRuntime makes a runtime for a list of plugins that are found in paths. It caches results in cache, and copies the
// plugins' stderr to stderr.
func NewRuntime(conflist []byte, paths []string, cache string, stderr io.Writer) (*Runtime, error) {
	list, err := libcni.NetworkConfFromBytes(conflist)
	if err != nil {
		return nil, fmt.Errorf("read the CNI configuration: %w", err)
	}
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: stderr}, PluginDecoder: version.PluginDecoder{}}
	return &Runtime{libcni.NewCNIConfigWithCacheDir(paths, cache, exec), list}, nil
}

// Runtime makes a runtime that executes weft-cni on this node.
func (n *Node) Runtime(stderr io.Writer) (*Runtime, error) {
	conflist, err := n.Conflist()
	if err != nil {
		return nil, err
	}
	return NewRuntime(conflist, []string{n.programs}, n.cache(), stderr)
}

// Add executes ADD.
func (r *Runtime) Add(ctx context.Context, p *Pod) (*types100.Result, error) {
	result, err := r.cni.AddNetworkList(ctx, r.list, p.conf())
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(result)
}

// Check executes CHECK with the result of the ADD.
func (r *Runtime) Check(ctx context.Context, p *Pod) error {
	return r.cni.CheckNetworkList(ctx, r.list, p.conf())
}

// Del executes DEL.
func (r *Runtime) Del(ctx context.Context, p *Pod) error {
	return r.cni.DelNetworkList(ctx, r.list, p.conf())
}

// Status executes STATUS.
func (r *Runtime) Status(ctx context.Context) error {
	return r.cni.GetStatusNetworkList(ctx, r.list)
}

// GC executes GC with the attachments of these pods as the valid ones.
func (r *Runtime) GC(ctx context.Context, living ...*Pod) error {
	args := &libcni.GCArgs{}
	for _, p := range living {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{
			ContainerID: p.ContainerID,
			IfName:      ifName,
		})
	}
	return r.cni.GCNetworkList(ctx, r.list, args)
}
