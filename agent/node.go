package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/k8s"
)

// oneQuestion bounds a question for the node to the API server.
const oneQuestion = 5 * time.Second

// learnNode asks what the node is, until it is known, and finds its uplink: pods get their addresses and MTU from these.
func (a *Agent) learnNode(ctx context.Context) error {
	name, ranges := a.config.Kubernetes.Node, a.wantsRanges()
	ask := func() (k8s.Node, error) { return a.askForNode(ctx, name) }
	node, err := backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(0))
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if a.uplink, err = a.findUplink(ctx, node.Addresses); err != nil {
		return err
	}
	a.health.advise(conditionUplink)
	if !ranges {
		return nil
	}
	for _, r := range node.PodCIDRs {
		pool := "pod-cidr-4"
		if r.Addr().Is6() {
			pool = "pod-cidr-6"
		}
		a.config.Pools = append(a.config.Pools, Pool{Name: pool, Prefix: r})
	}
	a.log.Info("pools are the node's ranges", "node", name, "pools", fmt.Sprint(a.config.Pools))
	return a.config.validatePools()
}

// askForNode asks once. Where the API server is away, what was known before serves.
func (a *Agent) askForNode(ctx context.Context, name string) (k8s.Node, error) {
	question, cancel := context.WithTimeout(ctx, oneQuestion)
	defer cancel()
	node, err := a.client.Node(question, name)
	if err == nil {
		err = a.suffices(name, node)
	}
	known := a.cluster.View().Node
	switch {
	case err == nil:
		return node, nil
	case known.UID != "" && a.suffices(name, known) == nil:
		a.log.Warn("the API server was not asked what the node is, what was known serves", "node", name, "err", err)
		return known, nil
	}
	a.log.Warn("what the node is in the cluster is not known yet, trying again", "node", name, "err", err)
	a.health.set(conditionStarted, false, "starting: waits for the API server to say what the node is: "+err.Error())
	return node, err
}

// suffices says what is not known of the node, and is needed.
func (a *Agent) suffices(name string, n k8s.Node) error {
	if _, has := a.outerAddress(n.Addresses); !has && a.config.Kubernetes.RequireUplink {
		return errUnreachable
	}
	if !a.wantsRanges() {
		return nil
	}
	return n.HasRanges(name)
}

// wantsRanges reports whether pools are to be the node's ranges.
func (a *Agent) wantsRanges() bool {
	return len(a.config.Pools) == 0 && a.config.Kubernetes.Addresses == OfPodCIDR
}
