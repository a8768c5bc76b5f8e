package nodeview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/pod"
)

// thisNode returns this node, empty if the API server does not have it.
func (c *Cluster) thisNode() Node {
	n, exists := c.machines.One(c.config.Node)
	if !exists {
		return Node{}
	}
	return nodeOf(n)
}

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

// poolNames parses a list of pools from an annotation of a node or a namespace; nil if it is invalid.
func poolNames(text string) []string {
	var names []string
	if text == "" || json.Unmarshal([]byte(text), &names) != nil {
		return nil
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "" })
}

func (c *Cluster) switches(v *View) {
	v.Switches.Marks = blocks.DefaultMarks()
	config, exists := c.configs.One(v1.WeftConfigName)
	if !exists {
		return
	}
	spec := config.Spec
	if spec.Paused {
		v.Paused = cmp.Or(spec.PausedReason, "the cluster is paused")
	}
	v.Switches.Borrowing, v.Switches.PodInterfaces = spec.Addresses.Borrowing, spec.PodInterfaces
	marks := v.Switches.Marks
	for _, set := range []struct {
		to   *int
		from *int32
	}{{&marks.Low, spec.Addresses.LowWater}, {&marks.High, spec.Addresses.HighWater}, {&marks.MaxBlocks, spec.Addresses.MaxBlocks}} {
		if set.from != nil {
			*set.to = int(*set.from)
		}
	}
	if w := spec.Addresses.WarmBlocks; w != nil && spec.Addresses.LowWater == nil {
		marks.WarmBlocks = int(*w)
	}
	if d := spec.Addresses.ReleaseAfter; d != nil {
		marks.Grace = d.Duration
	}
	marks.High = max(marks.High, marks.Low) // if only one of them is set
	if err := marks.Validate(); err != nil {
		v.Faults = append(v.Faults, Fault{"WeftConfig", config.Name, err.Error()})
		return
	}
	v.Switches.Marks = marks
}

// NodeID returns the confirmed number of this node, or 0.
func (c *Cluster) NodeID() uint32 {
	own, there := c.nodes.One(c.config.Node)
	if !there || !own.Spec.NodeIDConfirmed {
		return 0
	}
	return uint32(own.Spec.NodeID)
}
