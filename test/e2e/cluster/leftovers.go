package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// perPod are directories of a node that hold one thing for each pod with a network of its own: its namespace, and what
// containerd remembers of its CNI result.
var perPod = []string{"/run/netns", "/var/lib/cni/results"}

// Leftovers names what a node holds that has no pods with a network of their own: it should be nothing.
func (n *Node) Leftovers(ctx context.Context) ([]string, error) {
	left, err := n.cluster.config.CNI.Leftovers(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("look for what %s left on %s: %w", n.cluster.config.CNI.Name(), n.Name, err)
	}
	for _, dir := range perPod {
		found, err := n.Files(dir)
		if err != nil {
			return nil, err
		}
		left = append(left, found...)
	}
	return left, nil
}

// Files are the paths of what is in a directory of the node; nothing if there is no such directory.
func (n *Node) Files(dir string) (paths []string, err error) {
	err = n.Do(func() error {
		entries, err := os.ReadDir(dir)
		for _, entry := range entries {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s on %s: %w", dir, n.Name, err)
	}
	return paths, nil
}

// AwaitNoLeftovers waits until no node holds anything: DELs of the last pods may still be under way.
func (c *Cluster) AwaitNoLeftovers(ctx context.Context) error {
	return Eventually(ctx, "the nodes hold nothing of pods", func(ctx context.Context) error {
		for _, n := range c.Nodes {
			left, err := n.Leftovers(ctx)
			if err != nil {
				return err
			}
			if len(left) > 0 {
				return fmt.Errorf("%s holds %v", n.Name, left)
			}
		}
		return nil
	})
}
