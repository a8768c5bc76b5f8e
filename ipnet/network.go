// Package ipnet turns what connects a pod into desired values of the machine.
//
//	         pod's namespace          |           dataplane, VRF weft:pods            |        node
//	                                  |                                               |
//	eth0 10.1.0.5/32 <------ tap ------> weft-<hash>-eth0        weft-host <---- tap ----> weft0 10.1.0.1/32
//	default via 169.254.1.1           |  unnumbered: weft-gateway 169.254.1.1/32      |    10.1.0.0/24 via 169.254.1.1
//	default via fe80::1               |  fe80::1 on each; 10.1.0.5/32 -> its tap      |
//
// Extra interfaces, tap or veth, are on the same VRF, on nothing, or on a custom network:
//
//	x1 10.5.0.2/32 <-- L3 blue ------> weft-<hash>-x1 in VRF weft:blue, unnumbered: weft-gw-blue 10.5.0.1/32
//	10.5.0.0/24 via 10.5.0.1          |
//	x2 10.6.0.2/24 <-- L2 red -------> weft-<hash>-x2 in bridge domain weft:red, BVI: weft-gw-red 10.6.0.1/24
//
// Pods of other nodes are reached by a tunnel to each node, on the network default and on custom networks whose VNI the
// cluster chose. A routed network enters the tunnels by a loopback, with static entries only; a bridged network has the
// tunnels as members:
//
//	VRF weft:pods -- weft-bvi-default -- bridge domain weft:vxlan:default -- weft-vx-default-2 <== VXLAN ==> node 2
//	   10.1.2.0/26 via its address            its MAC: by its tunnel      \- weft-vx-default-3 <== VXLAN ==> node 3
//
// All neighbours of routes are static: no packet waits for ARP or ND. Everything here is pure: handlers make desired
// values and record attachments; the scheduler applies the values.
//
// The parts, each of which imports only those before it: [desired] names objects and makes the values of links and
// VRFs; [networks] holds pools, custom networks and address blocks; [mesh] makes the values of this node, of other
// nodes and of external interfaces; [attach] resolves the requests of pods.
package ipnet

import (
	"context"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// Config configures a [Network].
type Config struct {
	Networks networks.Config
	Mesh     mesh.Config
	Pods     attach.Config
}

// Network connects the pods of one node: it turns events into desired values. Its handlers belong to the event loop.
type Network struct {
	Networks  *networks.Networks
	Host      *mesh.Host
	Mesh      *mesh.Mesh
	Externals *mesh.Externals
	Pods      *attach.Pods
}

// New makes a network without pods. Each pool's node address is the node's from now on.
func New(c Config) (*Network, error) {
	var n Network
	var err error
	if n.Networks, err = networks.New(c.Networks); err != nil {
		return nil, err
	}
	if n.Host, err = mesh.NewHost(c.Mesh, n.Networks); err != nil {
		return nil, err
	}
	n.Mesh = mesh.New(n.Host, n.Networks)
	n.Externals = mesh.NewExternals(n.Mesh, n.Networks)
	n.Pods, err = attach.New(c.Pods, attach.Node{
		Networks: n.Networks, Host: n.Host, Mesh: n.Mesh, Externals: n.Externals,
	})
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// Register adds the handlers to the loop, before it runs.
func (n *Network) Register(l *eventloop.Loop) {
	eventloop.On(l, "ipnet", n.Pods.ConnectPod)
	eventloop.On(l, "ipnet", n.Pods.AddressPod)
	eventloop.On(l, "ipnet", n.Pods.ChangePod)
	eventloop.On(l, "ipnet", n.Pods.DisconnectPod)
	eventloop.On(l, "ipnet", n.WithholdPods)
	eventloop.On(l, "ipnet", n.ChangeNetworks)
	eventloop.On(l, "ipnet", n.ChangeNodes)
	eventloop.On(l, "ipnet", n.ChangePathMTU)
	eventloop.On(l, "ipnet", n.ChangeExternals)
	eventloop.On(l, "ipnet", n.ChangePools)
	eventloop.On(l, "ipnet", n.ChangeBlocks)
	eventloop.On(l, "ipnet", n.Pods.ChangePolicies)
	l.OnResync("ipnet", n.Resync)
}

// WithholdPods withholds the objects of the event's attachments from the dataplane, and desires those of all other
// attachments.
func (n *Network) WithholdPods(_ context.Context, ev *pod.WithholdPods, t *eventloop.Txn) error {
	return n.change(t, func() { n.Pods.Withhold(ev.Keys, t) })
}

// ChangeNetworks replaces the custom networks. External interfaces that do not fit into the changed networks are
// disconnected, until an event sets them again.
func (n *Network) ChangeNetworks(_ context.Context, ev *pod.SetNetworks, t *eventloop.Txn) error {
	defer n.occupyAgain(t)()
	return n.change(t, func() {
		n.Networks.SetNetworks(ev, n.Pods, t)
		n.Externals.Set(&pod.SetExternals{Externals: n.Externals.All()}, t)
	})
}

// ChangeNodes replaces the nodes that are reached.
func (n *Network) ChangeNodes(_ context.Context, ev *pod.SetNodes, t *eventloop.Txn) error {
	defer n.occupyAgain(t)()
	n.Mesh.Set(ev, n.Pods, t)
	return nil
}

// ChangePathMTU limits the packets of pods to other nodes.
func (n *Network) ChangePathMTU(_ context.Context, ev *pod.SetPathMTU, t *eventloop.Txn) error {
	n.Mesh.SetPathMTU(ev, t)
	return nil
}

// ChangeExternals replaces the external interfaces.
func (n *Network) ChangeExternals(_ context.Context, ev *pod.SetExternals, t *eventloop.Txn) error {
	defer n.occupyAgain(t)()
	return n.change(t, func() { n.Externals.Set(ev, t) })
}

// ChangePools replaces the pools of the node.
func (n *Network) ChangePools(_ context.Context, ev *pod.SetPools, t *eventloop.Txn) error {
	return n.change(t, func() { n.Networks.SetPools(ev, t) })
}

// ChangeBlocks replaces the blocks of the node.
func (n *Network) ChangeBlocks(_ context.Context, ev *pod.SetBlocks, t *eventloop.Txn) error {
	return n.change(t, func() { n.Networks.SetBlocks(ev, t) })
}

// change calls f, which changes what is desired, and adds the difference to the transaction.
func (n *Network) change(t *eventloop.Txn, f func()) error {
	before := n.everything()
	f()
	desired.Replace(t, before, n.everything())
	return nil
}

// occupyAgain returns a function that excludes the addresses of other machines from those of pods, after a change of
// these machines.
func (n *Network) occupyAgain(t *eventloop.Txn) func() {
	t.OnRollback(func() error { n.occupy(); return nil }) // undone last, after the change itself
	return n.occupy
}

// occupy excludes the addresses of other nodes, and of external interfaces on the network default, from those of pods.
func (n *Network) occupy() {
	by := n.Mesh.Addresses()
	for _, e := range n.Externals.All() {
		if desired.IsCustom(desired.NetworkOf(e.Network)) {
			continue
		}
		for _, p := range e.Addresses {
			by[p.Addr()] = "external interface " + e.Name
		}
	}
	n.Networks.Occupy(networks.OfMesh, by)
}

// Resync desires everything.
func (n *Network) Resync(_ context.Context, t *eventloop.Txn) error {
	n.everything().Put(t)
	return nil
}

// everything lists the values of the node, then of each custom network, the mesh, the external interfaces, and each
// attachment.
func (n *Network) everything() desired.Values {
	v := append(n.Host.Values(), n.Networks.Values()...)
	v = append(v, n.Mesh.Values()...)
	v = append(v, n.Externals.Values()...)
	return append(v, n.Pods.Values()...)
}
