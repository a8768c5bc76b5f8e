package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

// finalizer keeps networks that are being deleted while pods use them.
type finalizer struct {
	client *client.Client
	log    *slog.Logger
}

// keep adds the finalizer to a network, and removes it when the network is being deleted and no pod uses it.
// Without the finalizer another network could get the VNI while pods still send with it, and both would be one network.
func (f *finalizer) keep(ctx context.Context, n *v1.CustomNetwork, nodes []*v1.NodeNetwork) error {
	has := slices.Contains(n.Finalizers, v1.FinalizerInUse)
	deleting := n.DeletionTimestamp != nil
	switch {
	case has != deleting || deleting && usageOf(n, nodes) != "":
		return nil
	case deleting:
		unused, err := f.isUnused(ctx, n)
		if err != nil || !unused {
			return err
		}
	}
	next := n.DeepCopy()
	if deleting {
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(s string) bool { return s == v1.FinalizerInUse })
	} else {
		next.Finalizers = append(next.Finalizers, v1.FinalizerInUse)
	}
	_, err := client.Bounded(ctx, f.client.Networks().Update, next, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the watch shows the change, and the next reconciliation decides again
	case err != nil:
		return fmt.Errorf("write the finalizer of network %s: %w", n.Name, err)
	case deleting:
		f.log.Info("network is unused and its finalizer removed", "network", n.Name)
	}
	return nil
}

// isUnused reads the NodeNetworks from the API server: the watch may not show a node yet that has just joined.
func (f *finalizer) isUnused(ctx context.Context, n *v1.CustomNetwork) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	list, err := f.client.NodeNetworks().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list NodeNetworks: %w", err)
	}
	return usageOf(n, pointers(list.Items)) == "", nil
}

// pointers returns pointers to the items of a list.
func pointers[T any](items []T) []*T {
	pointers := make([]*T, len(items))
	for i := range items {
		pointers[i] = &items[i]
	}
	return pointers
}

// some joins up to five names and counts the others.
func some(names []string) string {
	const limit = 5
	if len(names) <= limit {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:limit], ", "), len(names)-limit)
}

// usageOf returns why a deleted network is kept, in one line of bounded length; "": it can be removed. A node that
// reports the network as closed adds no more pods to it. Older agents do not report that; the network then stays until
// they are upgraded.
func usageOf(n *v1.CustomNetwork, nodes []*v1.NodeNetwork) string {
	var pods, unreported []string
	for _, node := range v1.ByName(slices.Clone(nodes)) {
		i := slices.IndexFunc(node.Status.Networks, func(o v1.Observed) bool { return o.Name == n.Name })
		switch {
		case i >= 0 && node.Status.Networks[i].Generation >= n.Generation && node.Status.Networks[i].Closed:
			for _, pod := range node.Status.Networks[i].Pods {
				pods = append(pods, pod+" on "+node.Name)
			}
		case i >= 0 || mayHavePods(n, node):
			unreported = append(unreported, node.Name)
		}
	}
	var parts []string
	if len(pods) > 0 {
		parts = append(parts, "it is used by "+some(pods))
	}
	if len(unreported) > 0 {
		parts = append(parts, "waiting for nodes to report their pods: "+some(unreported))
	}
	return strings.Join(parts, "; ")
}

// mayHavePods reports whether a node that does not list the network may have pods on it: the node could not apply the
// network, has just joined, or is ready and will list the network soon.
func mayHavePods(n *v1.CustomNetwork, node *v1.NodeNetwork) bool {
	return slices.ContainsFunc(node.Status.Refused, func(r v1.Refusal) bool { return r.Name == n.Name }) ||
		node.Status.Version == "" || meta.IsStatusConditionTrue(node.Status.Conditions, v1.ConditionReady)
}
