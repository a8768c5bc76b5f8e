package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// The taints of the test's nodes, of the controller and of a third party. Neither prevents scheduling.
var (
	notReady = corev1.Taint{Key: "contivpp.io/agent-not-ready", Effect: corev1.TaintEffectPreferNoSchedule}
	another  = corev1.Taint{Key: "example.org/e2e", Effect: corev1.TaintEffectPreferNoSchedule}
)

// attempt is a change of a node: a JSON merge patch, made from its taints.
type attempt func(taints []corev1.Taint) (spec, metadata map[string]any)

// keeping returns a change that removes the taints with the given keys.
func keeping(without ...string) attempt {
	return func(taints []corev1.Taint) (spec, metadata map[string]any) {
		isGone := func(t corev1.Taint) bool { return slices.Contains(without, t.Key) }
		return map[string]any{"taints": slices.DeleteFunc(slices.Clone(taints), isGone)}, map[string]any{}
	}
}

// and returns the allowed change with an additional one.
func and(more func(spec, metadata map[string]any)) attempt {
	return func(taints []corev1.Taint) (spec, metadata map[string]any) {
		spec, metadata = keeping(notReady.Key)(taints)
		more(spec, metadata)
		return spec, metadata
	}
}

var wrongChanges = map[string]attempt{
	"take another's taint off":    keeping(another.Key),
	"take all taints off":         keeping(notReady.Key, another.Key),
	"leave the taint where it is": keeping(),
	"add a taint": and(func(spec, _ map[string]any) {
		more := corev1.Taint{Key: "example.org/more", Effect: corev1.TaintEffectPreferNoSchedule}
		spec["taints"] = append(spec["taints"].([]corev1.Taint), more)
	}),
	"label the node": and(func(_, metadata map[string]any) {
		metadata["labels"] = map[string]string{"e2e": "x"}
	}),
	"annotate the node": and(func(_, metadata map[string]any) {
		metadata["annotations"] = map[string]string{"e2e": "x"}
	}),
	"hold the node's deletion up": and(func(_, metadata map[string]any) {
		metadata["finalizers"] = []string{"example.org/e2e"}
	}),
	"give the node an owner": and(func(_, metadata map[string]any) {
		metadata["ownerReferences"] = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n2", UID: "x"}}
	}),
	"make the node unschedulable":   and(func(spec, _ map[string]any) { spec["unschedulable"] = true }),
	"say which machine the node is": and(func(spec, _ map[string]any) { spec["providerID"] = "e2e://x" }),
}

// With the optional permission the controller may remove its taint from nodes; the API server denies every other change
// of nodes.
func TestControllerRemovesOnlyItsTaintFromNodes(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	s.withTaints("n1")
	rights, err := os.ReadFile("../../k8s/manifests/taint.yaml")
	s.must(err)
	s.apply(string(rights)) // the controller does not use it, because it is not configured to
	controller := s.clientOf("weft-controller", &authv1.TokenRequest{})
	s.must(cluster.Eventually(t.Context(), "right and policy are in force", func(context.Context) error {
		if err := s.attempt(controller, "n1", keeping(notReady.Key)); err != nil {
			return err
		}
		if err := s.attempt(controller, "n1", wrongChanges["label the node"]); !isOfPolicy(err) {
			return fmt.Errorf("a label: %w", err)
		}
		return nil
	}))
	for what, wrong := range wrongChanges {
		if err := s.attempt(controller, "n1", wrong); !isOfPolicy(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.checkVerdict("take the taint off", s.attempt(controller, "n1", keeping(notReady.Key)), true)
	nodes := controller.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	s.checkVerdict("delete the node",
		nodes.Delete(t.Context(), "n1", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), false)
	for _, node := range []string{"n1", "n2"} {
		s.checkVerdict("as the agent of n1, take the taint off "+node,
			s.attempt(s.agentOf("n1"), node, keeping(notReady.Key)), false)
	}
}

// isOfPolicy reports whether the policy of taint.yaml denied a request.
func isOfPolicy(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "'weft-taint'")
}

// attempt tries a change of a node with a dry run. A conflict with another writer is not a result.
func (s *space) attempt(as dynamic.Interface, node string, change attempt) error {
	s.t.Helper()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := s.c.Client.CoreV1().Nodes().Get(s.t.Context(), node, metav1.GetOptions{})
		s.must(err)
		spec, metadata := change(n.Spec.Taints)
		metadata["resourceVersion"] = n.ResourceVersion
		patch, err := json.Marshal(map[string]any{"spec": spec, "metadata": metadata})
		s.must(err)
		nodes := as.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
		_, err = nodes.Patch(s.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll},
		})
		return err
	})
}

// withTaints adds the two taints to a node for a test.
func (s *space) withTaints(node string) {
	s.t.Helper()
	ours := func(t corev1.Taint) bool { return t == notReady || t == another }
	s.must(s.taint(s.t.Context(), node, func(taints []corev1.Taint) []corev1.Taint {
		return append(taints, notReady, another)
	}))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		s.must(s.taint(ctx, node, func(taints []corev1.Taint) []corev1.Taint {
			return slices.DeleteFunc(taints, ours)
		}))
	})
}

func (s *space) taint(ctx context.Context, node string, change func([]corev1.Taint) []corev1.Taint) error {
	nodes := s.c.Client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = change(n.Spec.Taints)
		_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
}
