package agent

import (
	"context"
	"log/slog"

	"github.com/weftnet/weft/agent/cluster"
	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/pathmtu"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

// membership is the part of this node in its cluster. A node without a cluster has only the networks of its
// configuration.
type membership struct {
	config   *config.Config
	member   *cluster.Member // nil without a cluster
	networks *cluster.NodeNetworks
	paths    *pathmtu.Monitor // nil: no tunnels lead to other nodes
}

// assembleCluster connects to the API server and reads this node.
func (a *Agent) assembleCluster(ctx context.Context) (err error) {
	if a.config.Kubernetes.Mode == config.NoCluster {
		return nil
	}
	if a.config.Kubernetes.Node, err = a.config.Kubernetes.Name(); err != nil {
		return err
	}
	if a.cluster.member, err = cluster.New(cluster.MemberConfig{
		Config: a.config,
		State:  a.storage.file,
		Health: a.health,
		Log:    a.log,
	}); err != nil {
		return err
	}
	a.admission.member = a.cluster.member
	defer a.health.Set(health.Started, false, health.FirstResync)
	return a.socket.serveWhile(ctx, func(ctx context.Context) error {
		return a.cluster.member.Learn(ctx, a.uplink.Card())
	})
}

// join prepares the node's part in its cluster. The state is restored.
func (a *Agent) join() error {
	if a.cluster.member == nil {
		return nil
	}
	return a.cluster.member.Join(cluster.Parts{
		Loop:       a.loop,
		Scheduler:  a.backend.scheduler,
		Network:    a.network,
		Networks:   a.cluster.networks,
		Pods:       a.pods,
		Owners:     a.observers.owners,
		Replayer:   a.replayer,
		Quarantine: a.quarantine,
	})
}

// view returns the last view of the cluster; without a cluster the zero view.
func (m *membership) view() (view nodeview.View) {
	if m.member != nil {
		view = m.member.View.View()
	}
	return view
}

// tunnelType returns the type of the tunnels to other nodes.
func (m *membership) tunnelType(c *config.Config) string {
	if m.member == nil {
		return networks.TunnelNone
	}
	return c.Kubernetes.Tunnel
}

// measurePaths prepares the measurement of the paths to other nodes, if tunnels lead there.
func (m *membership) measurePaths(
	network *ipnet.Network, loop *eventloop.Loop, conditions *health.Conditions, log *slog.Logger,
) {
	c := network.Networks.Config
	if m.member == nil || !c.HasTunnels() || !m.member.Uplink.Address.IsValid() {
		return
	}
	m.paths = pathmtu.New(pathmtu.Config{
		Node:     m.config.Kubernetes.Node,
		Self:     m.member.Uplink.Address,
		Needed:   c.MTU + c.Encapsulation(),
		Overhead: c.Encapsulation(),
		Peers:    func() []pathmtu.Peer { return peersOf(c, m.member.Others()) },
		Limit: func(ctx context.Context, mtu int) error {
			_, err := loop.Do(ctx, &pod.SetPathMTU{MTU: mtu})
			return err
		},
		Sufficed: linux.ForgetPathMTU,
		Health:   conditions,
		Log:      log.With("component", "pathmtu"),
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
func (m *membership) enforces() bool { return m.member != nil && m.member.Enforced != nil }

// settings returns the configuration in force: as read at the start, with the networks of now.
func (m *membership) settings() config.Config {
	c := *m.config
	c.Addresses.Networks = m.networks.Configured()
	return c
}
