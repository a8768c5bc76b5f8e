package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/k8s"
)

// oneQuestion bounds a question for the node to the API server.
const oneQuestion = 5 * time.Second

// nodePatience is how long the API server may take to say what the node is, before what an earlier run knew serves. Pods
// that run do not notice; and a node that has just booted may reach its services a little later than it starts the agent.
const nodePatience = 5 * time.Second

// learnNode asks what the node is, until it is known, and finds its uplink: pods get their addresses and MTU from these.
func (a *Agent) learnNode(ctx context.Context) error {
	name, until := a.config.Kubernetes.Node, time.Now().Add(nodePatience)
	ask := func() (k8s.Node, error) { return a.askForNode(ctx, name, until) }
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 100*time.Millisecond, nodePatience
	node, err := backoff.Retry(ctx, ask, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if a.uplink, err = a.findUplink(ctx, node.Addresses); err != nil {
		return err
	}
	a.health.Advise(health.Uplink)
	a.health.Advise(health.Announcements)
	a.expectAnnouncement(node.UID)
	if !a.wantsRanges() {
		return nil
	}
	a.ranges = rangesOf(node)
	a.log.Info("pools are the node's ranges", "node", name, "pools", fmt.Sprint(a.ranges))
	return config.ValidatePools(a.ranges)
}

// askForNode asks once. Where the API server is away for longer, what was known before serves: but not if the API server says
// that the node is gone or another one, for its ranges may be another node's by now.
func (a *Agent) askForNode(ctx context.Context, name string, until time.Time) (k8s.Node, error) {
	question, cancel := context.WithTimeout(ctx, oneQuestion)
	defer cancel()
	node, err := a.client.Node(question, name)
	known := a.cluster.View().Node
	isKnown := known.UID != "" && a.suffices(name, known) == nil
	switch {
	case err == nil:
		err = a.suffices(name, node)
		isKnown = isKnown && node.UID == known.UID
	case errors.Is(err, k8s.ErrNoNode):
		isKnown = false
	default:
		isKnown = isKnown && !time.Now().Before(until)
	}
	switch {
	case err == nil:
		return node, nil
	case isKnown:
		a.log.Warn("the API server was not asked what the node is, what was known serves", "node", name, "err", err)
		return known, nil
	}
	a.log.Warn("what the node is in the cluster is not known yet, trying again", "node", name, "err", err)
	a.health.Set(health.Started, false, "starting: waits for the API server to say what the node is: "+err.Error())
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
