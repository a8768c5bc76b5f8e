package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
)

// Addresses is the state of the cluster's addresses.
type Addresses struct {
	Pools  []blocks.PoolCIDR // all, including pools that no node may use
	Blocks []v1.IPBlock
	Nodes  blocks.Nodes
	Taken  map[string]string // by node, its pods with addresses that another node owns
	Unseen []string          // nodes whose current addresses are unknown, with the reason
}

// Addresses reads pools, blocks and nodes from the API server, in the order that [blocks.Check] expects.
func (c *Client) Addresses(ctx context.Context) (Addresses, error) {
	a := Addresses{Nodes: make(blocks.Nodes), Taken: make(map[string]string)}
	claimed, err := c.Blocks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return a, c.ListError(ctx, "ipblocks."+v1.Group, err)
	}
	pools, err := c.Pools().List(ctx, metav1.ListOptions{})
	if err != nil {
		return a, c.ListError(ctx, "ippools."+v1.Group, err)
	}
	networks, err := c.Networks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return a, c.ListError(ctx, "customnetworks."+v1.Group, err)
	}
	nodes, err := c.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return a, c.ListError(ctx, "nodes", err)
	}
	announced, err := c.NodeNetworks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return a, c.ListError(ctx, "nodenetworks."+v1.Group, err)
	}
	a.Blocks = claimed.Items
	a.Pools = poolsOf(pools.Items, networks.Items)
	hasAnnounced := make(map[string]bool)
	for i := range announced.Items {
		n := &announced.Items[i]
		hasAnnounced[n.Name] = true
		if c := meta.FindStatusCondition(n.Status.Conditions, v1.ConditionAddresses); c != nil &&
			c.Status == metav1.ConditionFalse {
			a.Taken[n.Name] = c.Message
		}
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		a.Nodes[n.Name] = string(n.UID)
		switch {
		case !hasAnnounced[n.Name]:
			a.Unseen = append(a.Unseen, n.Name+": its agent has not announced it")
		case !IsReady(n):
			a.Unseen = append(a.Unseen, n.Name+": Kubernetes does not report it as ready")
		}
	}
	return a, nil
}

// IsReady reports whether Kubernetes considers a node ready.
func IsReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// poolsOf lists all pools and networks that blocks are claimed from. The prefix of an unreadable CIDR is invalid; the
// check reports it.
func poolsOf(pools []v1.IPPool, networks []v1.CustomNetwork) []blocks.PoolCIDR {
	var all []blocks.PoolCIDR
	for i := range pools {
		prefix := pools[i].Spec.CIDR.Prefix()
		all = append(all, blocks.PoolCIDR{Name: pools[i].Name, Prefix: prefix, Bits: blocks.BitsOf(&pools[i], prefix)})
	}
	for i := range networks {
		sizes := blocks.SizesOf(&networks[i])
		for _, text := range networks[i].Spec.CIDRs {
			prefix := text.Prefix()
			all = append(all, blocks.PoolCIDR{Network: networks[i].Name, Prefix: prefix, Bits: sizes.Of(prefix)})
		}
	}
	return all
}

// ListError says what an operator can do about a list that failed.
func (c *Client) ListError(ctx context.Context, what string, err error) error {
	host := c.core.Get().URL().Host
	unsent, isUnsent := errors.AsType[*url.Error](err)
	if isUnsent {
		err = unsent.Err // without the long URL
	}
	switch {
	case strings.Contains(err.Error(), "client rate limiter"): // client-go, of a retry for which no time was left
		return fmt.Errorf("list %s: the API server at %s cannot be reached: no answer within the timeout", what, host)
	case ctx.Err() != nil:
		return fmt.Errorf("list %s: no answer of the API server at %s: %w", what, host, OneLine(err))
	case apierrors.IsNotFound(err):
		return fmt.Errorf(
			"list %s: the API server at %s has no such kind: are Weft's custom resource definitions installed?", what,
			host)
	case isUnsent:
		return fmt.Errorf("list %s: the API server at %s cannot be asked: %w", what, host, OneLine(err))
	}
	return fmt.Errorf("list %s: %w", what, OneLine(err))
}
