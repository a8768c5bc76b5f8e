package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// A user sees the agent's error at kubectl apply, not in the events of a pod that does not start.
func TestWrongPodIsRefusedWhenItIsApplied(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	const manifest = `{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: wrong, annotations: {contivpp.io/custom-if: %q, contivpp.io/custom-if-options: %q}},
  spec: {containers: [{name: e2e-pod, image: %s}]}}`
	for _, tt := range []struct{ interfaces, options, want string }{
		{"t1/tub", "", `annotation contivpp.io/custom-if: item "t1/tub": the type must be tap, veth or memif`},
		{"t1/tap", `{"t1": {"mtuu": 1400}}`, `"t1": mtuu: unknown option; known are allowedAddresses`},
		{
			"m1/memif", "",
			"the pod's containers have 0 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 1",
		},
	} {
		_, err := s.c.Kubectl(t.Context(),
			fmt.Appendf(nil, manifest, s.name, tt.interfaces, tt.options, cluster.PodImage), "apply", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: kubectl apply ends with %v, want %s", tt.interfaces, tt.options, err, tt.want)
		}
	}
	_, err := s.c.Client.CoreV1().Pods(s.name).Get(t.Context(), "wrong", metav1.GetOptions{})
	if err == nil {
		t.Error("the wrong pod exists")
	}
}

// The optional policy sets the limit, and the pod gets its memif.
func TestMemifLimitIsSetFromTheAnnotation(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "k8s", "manifests", "memif-limits.yaml"))
	s.must(err)
	only := fmt.Sprintf(
		"  policyName: weft-memif-limits\n  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}\n",
		s.name)
	s.apply(strings.Replace(string(text), "  policyName: weft-memif-limits\n", only, 1))
	// The API server evaluates a new policy after a moment.
	try := 0
	s.must(cluster.Eventually(t.Context(), "the limit is set", func(ctx context.Context) error {
		try++
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:        fmt.Sprint("memif-", try),
				Annotations: map[string]string{"contivpp.io/custom-if": "m1/memif"},
			},
			Spec: podSpec("n1"),
		}
		made, err := s.c.Client.CoreV1().Pods(s.name).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err // the policy for pods refuses it as long as it has no limit
		}
		if limit := made.Spec.Containers[0].Resources.Limits["contivpp.io/memif"]; limit.Value() != 1 {
			return fmt.Errorf("the limits are %v", made.Spec.Containers[0].Resources.Limits)
		}
		return nil
	}))
	s.ready(fmt.Sprint("memif-", try))
}

// Tools for GitOps apply the manifests repeatedly and report each change.
func TestManifestsAppliedAgainChangeNothing(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	arguments := []string{"apply"}
	for _, name := range []string{"crds", "rbac.yaml", "admission.yaml", "annotate.yaml", "pods.yaml"} {
		arguments = append(arguments, "-f", filepath.Join("..", "..", "k8s", "manifests", name))
	}
	out, err := s.c.Kubectl(t.Context(), nil, arguments...)
	s.must(err)
	unchanged := 0
	for line := range strings.Lines(string(out)) {
		if !strings.HasSuffix(line, " unchanged\n") {
			t.Errorf("applied again: %s", line)
		}
		unchanged++
	}
	if unchanged < 30 {
		t.Errorf("%d objects were applied:\n%s", unchanged, out)
	}
}
