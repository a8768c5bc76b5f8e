package agent

import (
	"context"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/pathmtu"
	"github.com/weftnet/weft/dataplane/linux"
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
	if a.member, err = cluster.New(cluster.MemberConfig{
		Config: a.config,
		State:  a.state,
		Health: a.health,
		Log:    a.log,
	}); err != nil {
		return err
	}
	a.admission.member = a.member
	defer a.health.Set(health.Started, false, health.FirstResync)
	return a.socket.serveWhile(ctx, func(ctx context.Context) error { return a.member.Learn(ctx, a.uplink.Card()) })
}

// join prepares the node's part in its cluster. The state is restored.
func (a *Agent) join() error {
	if a.member == nil {
		return nil
	}
	a.observers = append(a.observers, a.member.Observe)
	return a.member.Join(cluster.Parts{
		Loop:       a.loop,
		Scheduler:  a.scheduler,
		Network:    a.network,
		Networks:   a.networks,
		Pods:       a.pods,
		Owners:     a.owners,
		Replayer:   a.replayer,
		Quarantine: a.quarantine,
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

// assemblePathMTU prepares the measurement of the paths to other nodes, if tunnels lead there.
func (a *Agent) assemblePathMTU() {
	c := a.network.Networks.Config
	if a.member == nil || !c.HasTunnels() || !a.member.Uplink.Address.IsValid() {
		return
	}
	a.paths = pathmtu.New(pathmtu.Config{
		Node:     a.config.Kubernetes.Node,
		Self:     a.member.Uplink.Address,
		Needed:   c.MTU + c.Encapsulation(),
		Overhead: c.Encapsulation(),
		Peers:    func() []pathmtu.Peer { return peersOf(c, a.member.Others()) },
		Limit: func(ctx context.Context, mtu int) error {
			_, err := a.loop.Do(ctx, &pod.SetPathMTU{MTU: mtu})
			return err
		},
		Sufficed: linux.ForgetPathMTU, Health: a.health, Log: a.log.With("component", "pathmtu"),
	})
}

// peersOf lists the nodes that tunnels lead to.
func peersOf(c networks.Config, nodes []pod.Node) (peers []pathmtu.Peer) {
	for _, n := range nodes {
		if end := c.EndOf(n); end.IsValid() && n.ID != 0 {
			peers = append(peers, pathmtu.Peer{Name: n.Name, Address: end})
		}
	}
	return peers
}

// enforces reports whether network policies are enforced.
func (a *Agent) enforces() bool { return a.member != nil && a.member.Enforced != nil }

// settings returns the configuration in force: as read at the start, with the networks of now.
func (a *Agent) settings() config.Config {
	c := a.config
	c.Addresses.Networks = a.networks.Configured()
	return c
}
