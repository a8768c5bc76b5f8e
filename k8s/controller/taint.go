package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
)

// TaintNotReady is the key of a taint, with any effect, that kubelet may register a node with, so that no pod is
// scheduled to the node before its agent serves pods.
const TaintNotReady = v1.Group + "/agent-not-ready"

func isTainted(n *corev1.Node) bool { return slices.ContainsFunc(n.Spec.Taints, isNotReady) }

func isNotReady(t corev1.Taint) bool { return t.Key == TaintNotReady }

// staleTaints returns the nodes that have the taint although their agents serve pods. It ignores announcements for an
// earlier node of the same name.
func (o *overview) staleTaints() []*corev1.Node {
	if o.machines == nil {
		return nil
	}
	return slices.DeleteFunc(o.machines.All(), func(n *corev1.Node) bool {
		announced, exists := o.nodes.One(n.Name)
		return !isTainted(n) || !exists || !servesPods(announced, n.UID)
	})
}

func servesPods(announced *v1.NodeNetwork, node types.UID) bool {
	ofNode := func(o metav1.OwnerReference) bool { return o.UID == node }
	return slices.ContainsFunc(announced.OwnerReferences, ofNode) &&
		meta.IsStatusConditionTrue(announced.Status.Conditions, v1.ConditionReady)
}

// taints removes the taint from nodes that serve pods.
type taints struct {
	client   *client.Client
	overview *overview
	log      *slog.Logger
}

func (t *taints) reconcile(ctx context.Context) error {
	var errs []error
	for _, n := range t.overview.staleTaints() {
		errs = append(errs, t.remove(ctx, n))
	}
	return errors.Join(errs...)
}

// remove removes the taint from a node, if the node has not changed.
func (t *taints) remove(ctx context.Context, n *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion},
		"spec":     map[string]any{"taints": slices.DeleteFunc(slices.Clone(n.Spec.Taints), isNotReady)},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, client.RequestTimeout)
	defer cancel()
	_, err = t.client.Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the watch shows the change
	case err != nil:
		return fmt.Errorf("remove taint %s from node %s: %w", TaintNotReady, n.Name, err)
	}
	t.log.Info("node serves pods, taint removed", "node", n.Name, "taint", TaintNotReady)
	return nil
}
