package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// perPod are directories of a node with one entry for each pod with its own network: its namespace, and containerd's
// cached CNI result.
var perPod = []string{"/run/netns", "/var/lib/cni/results"}

// Leftovers lists what is left on a node without pods with their own network; it should be empty.
func (n *Node) Leftovers(ctx context.Context) ([]string, error) {
	left, err := n.cluster.config.CNI.Leftovers(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("list leftovers of %s on %s: %w", n.cluster.config.CNI.Name(), n.Name, err)
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

// Files returns the paths of the files in a directory of the node; none if the directory does not exist.
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

// AwaitNoLeftovers waits until no node has leftovers: DELs of the last pods may still be running.
func (c *Cluster) AwaitNoLeftovers(ctx context.Context) error {
	return Eventually(ctx, "the nodes have no leftovers of pods", func(ctx context.Context) error {
		for _, n := range c.Nodes {
			left, err := n.Leftovers(ctx)
			if err != nil {
				return err
			}
			if len(left) > 0 {
				return fmt.Errorf("left over on %s: %v", n.Name, left)
			}
		}
		return nil
	})
}
