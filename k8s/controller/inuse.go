package controller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

// keepInUse adds the finalizer to a network, and removes it when the network is being deleted and no pod uses it. Without the finalizer
// another network could get the VNI while pods still send with it, and both would be one network.
func (c *Controller) keepInUse(ctx context.Context, n *v1.CustomNetwork, nodes []*v1.NodeNetwork) error {
	has, deleting := slices.Contains(n.Finalizers, v1.FinalizerInUse), n.DeletionTimestamp != nil
	switch {
	case has != deleting || deleting && !usageOf(n, nodes).IsNone():
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
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	_, err := c.client.Networks().Update(ctx, next, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the watch shows the change, and the next round decides again
	case err != nil:
		return fmt.Errorf("write the finalizer of network %s: %w", n.Name, err)
	case deleting:
		c.log.Info("network is unused and its finalizer removed", "network", n.Name)
	}
	return nil
}

// isUnused reads the NodeNetworks from the API server: the watch may not show a node yet that has just joined.
func (c *Controller) isUnused(ctx context.Context, n *v1.CustomNetwork) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	list, err := c.client.NodeNetworks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list NodeNetworks: %w", err)
	}
	nodes := make([]*v1.NodeNetwork, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return usageOf(n, nodes).IsNone(), nil
}
