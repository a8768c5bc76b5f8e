package controller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// keepInUse holds a network that is being deleted until no pod uses it. Else its VXLAN identifier could be given to another network
// while pods still send with it, and the two networks would be one.
func (c *Controller) keepInUse(ctx context.Context, n *v1.CustomNetwork, nodes []*v1.NodeNetwork) error {
	has, deleting := slices.Contains(n.Finalizers, v1.FinalizerInUse), n.DeletionTimestamp != nil
	switch {
	case has != deleting || deleting && !k8s.UsageOf(n, nodes).IsNone():
		return nil
	case deleting:
		unused, err := c.isUnused(ctx, n)
		if err != nil || !unused {
			return err
		}
	}
	next := n.DeepCopy()
	if deleting {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == v1.FinalizerInUse })
	} else {
		next.Finalizers = append(next.Finalizers, v1.FinalizerInUse)
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if _, err := c.client.Networks().Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the finalizer of network %s: %w", n.Name, err)
	}
	if deleting {
		c.log.Info("network is not used any more and goes", "network", n.Name)
	}
	return nil
}

// isUnused asks the API server itself: a watch may not have shown a node yet that has joined.
func (c *Controller) isUnused(ctx context.Context, n *v1.CustomNetwork) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	list, err := c.client.NodeNetworks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list what nodes have: %w", err)
	}
	nodes := make([]*v1.NodeNetwork, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return k8s.UsageOf(n, nodes).IsNone(), nil
}
