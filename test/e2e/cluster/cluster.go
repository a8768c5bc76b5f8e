// Package cluster runs Kubernetes on machines of a lab: a control plane in this process's namespaces, and nodes with
// containerd, kubelet and kube-proxy.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/weftnet/weft/test/e2e/image"
	"github.com/weftnet/weft/test/e2e/machine"
	"github.com/weftnet/weft/test/e2e/programs"
	"github.com/weftnet/weft/test/e2e/stage"
)

// CNI is the network of the cluster: Weft, or a peer to compare it with.
type CNI interface {
	// Name is the name in reports.
	Name() string
	// Images are the images of its manifests; every node has them when it boots.
	Images(ctx context.Context) ([]image.Image, error)
	// Install applies manifests, once, when the API server is ready and before nodes exist.
	Install(ctx context.Context, c *Cluster) error
	// NodeUp is called each time a node has booted and registered, for setup that is not in a DaemonSet.
	NodeUp(ctx context.Context, n *Node) error
	// Leftovers lists what the CNI has on a node without pods with their own network; it should be empty.
	Leftovers(ctx context.Context, n *Node) ([]string, error)
}

// Config is the configuration of a cluster.
type Config struct {
	Stage    stage.Stage
	Programs *programs.Set
	// Nodes are the names of the nodes.
	Nodes []string
	CNI   CNI
	// Images are on every node, in addition to those of the CNI.
	Images []image.Image
	Log    *slog.Logger
}

// Cluster is a running cluster.
type Cluster struct {
	// Client reaches the API server as an administrator, as do users of Access.
	Client kubernetes.Interface
	Access *rest.Config
	// Nodes are in the configuration's order.
	Nodes []*Node
	// Control is the control plane.
	Control *Control

	config   Config
	lab      *machine.Lab
	archives []string
}

// Names of the images that every cluster has.
const (
	pauseImage = "localhost/e2e-pause:1"
	// PodImage is the image of the pods' program, e2e-pod.
	PodImage = "localhost/e2e-pod:1"
)

// StandardImages returns the image of the pods' program, which must be built.
func StandardImages(podProgram string) []image.Image {
	files := map[string]string{"/e2e-pod": podProgram}
	return []image.Image{
		{Name: pauseImage, Files: files, Entrypoint: []string{"/e2e-pod", "pause"}},
		{Name: PodImage, Files: files, Entrypoint: []string{"/e2e-pod"}},
	}
}

// Start starts a cluster and waits until its nodes are ready and pods can be created. A cluster that failed to start
// needs Stop too.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	c := &Cluster{config: config}
	lab, err := machine.NewLab(machine.Config{
		Disk: config.Stage.Disk(), Logs: config.Stage.Logs(), Cgroup: config.Stage.Cgroup(),
		Shared: config.Programs.Shared(), Env: config.Programs.Env(),
	})
	if err != nil {
		return c, err
	}
	c.lab = lab
	if c.Control, err = newControl(config, lab.Router()); err != nil {
		return c, err
	}
	c.Client = c.Control.client
	c.Access = c.Control.access
	if err := c.writeImages(ctx); err != nil {
		return c, err
	}
	for _, name := range config.Nodes {
		n, err := c.newNode(name)
		if err != nil {
			return c, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c, c.bringUp(ctx)
}

// writeImages writes the archives that nodes import.
func (c *Cluster) writeImages(ctx context.Context) error {
	images, err := c.config.CNI.Images(ctx)
	if err != nil {
		return fmt.Errorf("make the images of %s: %w", c.config.CNI.Name(), err)
	}
	for i, img := range append(images, c.config.Images...) {
		archive := filepath.Join(c.config.Stage.Disk(), fmt.Sprintf("image-%d.tar", i))
		if err := img.Archive(archive); err != nil {
			return err
		}
		c.archives = append(c.archives, archive)
	}
	return nil
}

// bringUp starts the control plane and boots the nodes concurrently, then joins them.
func (c *Cluster) bringUp(ctx context.Context) error {
	started := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Control.start(gctx) })
	for _, n := range c.Nodes {
		g.Go(func() error { return n.boot(gctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	c.config.Log.Info("API server answers and nodes run containerd",
		"after", time.Since(started).Round(time.Millisecond))
	if err := c.config.CNI.Install(ctx, c); err != nil {
		return fmt.Errorf("install %s: %w", c.config.CNI.Name(), err)
	}
	g, gctx = errgroup.WithContext(ctx)
	for _, n := range c.Nodes {
		g.Go(func() error { return n.join(gctx, 0) })
	}
	g.Go(func() error { return c.awaitDefaults(gctx, "default") })
	if err := g.Wait(); err != nil {
		return err
	}
	c.config.Log.Info("cluster is ready", "nodes", len(c.Nodes), "cni", c.config.CNI.Name(),
		"after", time.Since(started).Round(time.Millisecond))
	return nil
}

// CNI returns the network of the cluster.
func (c *Cluster) CNI() CNI { return c.config.CNI }

// Programs returns the programs of the cluster.
func (c *Cluster) Programs() *programs.Set { return c.config.Programs }

// Outside returns the addresses of this process, which is outside of the cluster, IPv4 first.
func (c *Cluster) Outside() []netip.Addr { return c.lab.Router() }

// Node returns the node with a name, or nil.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Stop kills all processes without saving state.
func (c *Cluster) Stop() error {
	var failed error
	if c.Control != nil {
		failed = c.Control.kill()
	}
	if c.lab != nil {
		failed = errors.Join(failed, c.lab.Close())
	}
	return failed
}
