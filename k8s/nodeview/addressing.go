package nodeview

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// addressing is this node with the networks and pools that it gets addresses from.
type addressing struct {
	node     string
	machines *informer.Informer[*corev1.Node]
	networks customNetworks
	pools    ipPools
}

// view is the part of the view that announcements are validated against.
func (a *addressing) view() View {
	v := View{NetworkViews: NetworkViews{
		Generations: make(map[string]int64),
		BlockSizes:  make(map[string]blocks.Sizes),
	}}
	if n, exists := a.machines.One(a.node); exists {
		v.Node = nodeOf(n)
	}
	a.networks.addTo(&v)
	a.pools.addTo(&v)
	return v
}

// lighten keeps of a Node what is read: of other nodes addresses, podCIDRs and age.
func (a *addressing) lighten(n *corev1.Node) *corev1.Node {
	light := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, CreationTimestamp: n.CreationTimestamp,
	}}
	if n.Name == a.node {
		light.Labels = n.Labels
		light.Annotations = n.Annotations
	}
	light.Spec.PodCIDRs = n.Spec.PodCIDRs
	light.Status.Addresses = n.Status.Addresses
	return light
}

func sameNode(x, y *corev1.Node) bool { return reflect.DeepEqual(nodeOf(x), nodeOf(y)) }

// ErrNoNode means that the API server has no node of that name.
var ErrNoNode = errors.New("the API server has no such node")

// ReadNode reads a node from the API server.
func ReadNode(ctx context.Context, c *client.Client, name string) (Node, error) {
	n, err := c.Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Node{}, fmt.Errorf("ask for node %s: %w", name, ErrNoNode)
	case err != nil:
		return Node{}, fmt.Errorf("ask for node %s: %w", name, client.OneLine(err))
	}
	return nodeOf(n), nil
}

// nodeOf converts a Node.
func nodeOf(n *corev1.Node) Node {
	node := Node{UID: string(n.UID), Labels: n.Labels, Pools: poolNames(n.Annotations[pod.AnnotationPools])}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			node.PodCIDRs = append(node.PodCIDRs, p.Masked())
		}
	}
	for _, a := range n.Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			node.Addresses = append(node.Addresses, address.Unmap())
		}
	}
	return node
}

// HasRanges refuses a node without podCIDRs: a node gets them soon after it joins, or never.
func (n Node) HasRanges(name string) error {
	if len(n.PodCIDRs) == 0 {
		return fmt.Errorf("node %s has no podCIDRs: does kube-controller-manager run with --allocate-node-cidrs?", name)
	}
	return nil
}
