package agent

import (
	"context"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/operations"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

// assembleCluster connects to the API server and reads this node.
func (a *Agent) assembleCluster(ctx context.Context) (err error) {
	if a.config.Kubernetes.Mode == config.NoCluster {
		return nil
	}
	if a.config.Kubernetes.Node, err = a.config.Kubernetes.Name(); err != nil {
		return err
	}
	if a.member, err = cluster.New(cluster.MemberConfig{Config: a.config, State: a.state, Health: a.health, Log: a.log}); err != nil {
		return err
	}
	defer a.health.Set(health.Started, false, health.FirstResync)
	return a.serveWhile(ctx, func(ctx context.Context) error { return a.member.Learn(ctx, a.uplink.Card()) })
}

// join prepares the node's part in its cluster. The state is restored.
func (a *Agent) join() error {
	if a.member == nil {
		return nil
	}
	a.observers = append(a.observers, a.member.Observe)
	return a.member.Join(cluster.Parts{
		Loop: a.loop, Scheduler: a.scheduler, Network: a.network, Networks: a.networks, Pods: a.pods, Replayer: a.replayer, Quarantine: a.quarantine,
	})
}

// view returns the last view of the cluster; without a cluster the zero view.
func (a *Agent) view() (view nodeview.View) {
	if a.member != nil {
		view = a.member.View.View()
	}
	return view
}

// tunnelType returns the type of the tunnels to other nodes.
func (a *Agent) tunnelType(c *config.Config) string {
	if a.member == nil {
		return networks.TunnelNone
	}
	return c.Kubernetes.Tunnel
}

// annotations returns the source of pods' annotations if the runtime does not pass them; nil: there is none.
func (a *Agent) annotations() func(context.Context, pod.ID) (map[string]string, string, error) {
	if a.member == nil {
		return nil
	}
	return a.member.View.Annotations
}

// selected returns the function that resolves the networks that pods select; nil: Multus does, or there is no cluster.
func (a *Agent) selected() func(context.Context, *pod.AddPod) ([]pod.InterfaceRequest, error) {
	if a.member == nil || a.config.Kubernetes.Multus {
		return nil
	}
	return a.member.Selected
}

// policies returns the source of the rules of pods; nil: policies are not enforced.
func (a *Agent) policies() attach.Policies {
	if a.member == nil || a.member.Enforced == nil {
		return nil
	}
	return a.member.Enforced
}

// explainer returns what explains decisions of policies; nil: policies are not enforced.
func (a *Agent) explainer() operations.Explainer {
	if a.member == nil || a.member.Enforced == nil {
		return nil
	}
	return a.member.Enforced
}

// learn returns the function that reads what policies need to know of a new pod; nil: nothing.
func (a *Agent) learn() func(context.Context, pod.ID) {
	if a.member == nil || a.member.Enforced == nil {
		return nil
	}
	return a.member.Enforced.Learn
}

// forget returns the function that forgets what was read of a pod that could not be connected; nil: nothing was read.
func (a *Agent) forget() func(pod.ID) {
	if a.member == nil || a.member.Enforced == nil {
		return nil
	}
	return a.member.Enforced.Forget
}

// refillable reports whether an ADD was refused because the node lacks addresses that come from the cluster.
func (a *Agent) refillable(refused error) bool {
	return a.member != nil && a.member.Blocks.Refillable(refused)
}

// refill requests more addresses for the node after an ADD was refused, and waits for them.
func (a *Agent) refill(ctx context.Context, ev *pod.AddPod, refused error) error {
	return a.member.Blocks.Refill(ctx, ev, refused)
}

// paused reports whether and why ADDs are refused: the administrator paused them, or the state file cannot be written. DELs are served.
func (a *Agent) paused() (reason string, paused bool) {
	reason = a.view().Paused
	if reason == "" && a.monitor.Try() != nil {
		reason = a.health.Failure(health.State)
	}
	return reason, reason != ""
}

// settings returns the configuration in force: as read at the start, with the networks of now.
func (a *Agent) settings() config.Config {
	c := a.config
	c.Addresses.Networks = a.networks.Configured()
	return c
}
