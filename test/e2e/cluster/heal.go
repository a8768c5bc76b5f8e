package cluster

import (
	"context"

	"github.com/weftnet/weft/test/e2e/service"
)

// Heal starts services that do not run and waits until the cluster is ready, so that a failed test does not affect
// others.
func (c *Cluster) Heal(ctx context.Context) error {
	control := c.Control
	if err := startEnded(control.Etcd, control.APIServer, control.ControllerManager, control.Scheduler); err != nil {
		return err
	}
	if err := control.AwaitAPI(ctx); err != nil {
		return err
	}
	for _, n := range c.Nodes {
		if err := n.heal(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) heal(ctx context.Context) error {
	if !n.Running() {
		return n.Up(ctx)
	}
	if err := startEnded(n.Containerd, n.Kubelet, n.Proxy); err != nil {
		return err
	}
	if err := n.AwaitContainerd(ctx); err != nil {
		return err
	}
	return n.AwaitReady(ctx)
}

func startEnded(services ...*service.Service) error {
	for _, s := range services {
		if s.Ended() == nil {
			continue
		}
		if err := s.Start(); err != nil {
			return err
		}
	}
	return nil
}
