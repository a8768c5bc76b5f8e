package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Up boots the node and waits until it is ready for pods.
func (n *Node) Up(ctx context.Context) error { return n.UpBeforeServices(ctx, 0) }

// UpBeforeServices is Up with a delayed kube-proxy, as where kube-proxy is a pod: until then programs of the node
// cannot reach the API server by its Service.
func (n *Node) UpBeforeServices(ctx context.Context, later time.Duration) error {
	if err := n.boot(ctx); err != nil {
		return err
	}
	return n.join(ctx, later)
}

// Reboot cuts the node's power and boots it again: everything outside of its disk is lost.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.Cut(); err != nil {
		return err
	}
	return n.Up(ctx)
}

// boot switches the machine on and starts containerd with the cluster's images.
func (n *Node) boot(ctx context.Context) error {
	if err := n.On(ctx); err != nil {
		return err
	}
	for name, content := range n.files {
		if err := n.Write("/etc/kubernetes/"+name, content, 0o600); err != nil {
			return err
		}
	}
	// containerd executes loopback for every pod; portmap serves host ports with any CNI.
	if err := n.InstallPlugins("loopback", "portmap"); err != nil {
		return err
	}
	if err := n.Containerd.Start(); err != nil {
		return err
	}
	if err := n.AwaitContainerd(ctx); err != nil {
		return err
	}
	for _, archive := range n.cluster.archives {
		if err := n.load(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// installPlugin copies a CNI plugin to containerd's directory.
func (n *Node) installPlugin(name string) error {
	content, err := os.ReadFile(n.cluster.config.Programs.Path(name))
	if err != nil {
		return fmt.Errorf("read the plugin %s: %w", name, err)
	}
	return n.Write("/opt/cni/bin/"+name, content, 0o755)
}

// InstallPlugins copies plugins of the cluster's programs to containerd's directory.
func (n *Node) InstallPlugins(names ...string) error {
	for _, name := range names {
		if err := n.installPlugin(name); err != nil {
			return err
		}
	}
	return nil
}

// AwaitContainerd waits until containerd serves kubelet: it serves its own clients earlier.
func (n *Node) AwaitContainerd(ctx context.Context) error {
	return Eventually(ctx, "containerd answers on "+n.Name, func(context.Context) error {
		if err := n.Containerd.Ended(); err != nil {
			return hopeless(err)
		}
		return n.Containerd.Says("containerd successfully booted")
	})
}

// load imports an image into containerd.
func (n *Node) load(ctx context.Context, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("load an image: %w", err)
	}
	defer file.Close()
	cmd := exec.CommandContext(ctx, n.cluster.config.Programs.Path("ctr"), "--namespace=k8s.io", "images", "import",
		"-")
	var output bytes.Buffer
	cmd.Stdin = file
	cmd.Stdout = &output
	cmd.Stderr = &output
	if err := n.Start(cmd); err != nil {
		return fmt.Errorf("load an image on %s: %w", n.Name, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("load an image on %s: %w: %s", n.Name, err, output.Bytes())
	}
	return nil
}

// join starts kubelet and, after a delay, kube-proxy, sets up the CNI on the node, and waits until the node is ready.
func (n *Node) join(ctx context.Context, later time.Duration) error {
	if err := n.Kubelet.Start(); err != nil {
		return err
	}
	if _, err := n.PodCIDRs(ctx); err != nil {
		return err
	}
	if err := n.cluster.config.CNI.NodeUp(ctx, n); err != nil {
		return fmt.Errorf("%s on %s: %w", n.cluster.config.CNI.Name(), n.Name, err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(later):
	}
	if err := n.Proxy.Start(); err != nil {
		return err
	}
	return n.AwaitReady(ctx)
}
