package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// timeout is the timeout of one step of a pod on a busy machine.
const timeout = 90 * time.Second

// space is the Kubernetes namespace of a test, deleted with its pods.
type space struct {
	t    *testing.T
	c    *cluster.Cluster
	name string

	applied []string // manifests
}

func newSpace(t *testing.T) *space {
	t.Helper()
	name := "e2e-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	return newSpaceNamed(t, name[:min(len(name), 60)])
}

func newSpaceNamed(t *testing.T, name string) *space {
	t.Helper()
	s := &space{t: t, c: need(t), name: name}
	s.must(s.c.CreateNamespace(t.Context(), s.name))
	t.Cleanup(s.clear)
	return s
}

// clear repairs the cluster, removes the test's objects and waits until no pod is left; the test's own context has
// ended.
func (s *space) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s.must(s.c.Heal(ctx))
	s.must(s.c.Client.CoreV1().Namespaces().Delete(ctx, s.name, metav1.DeleteOptions{}))
	// The namespace's controller would wait five seconds before it deletes the objects.
	s.must(s.c.Client.CoreV1().Pods(s.name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.must(s.awaitNoPods(context.Background()))
	for _, manifest := range slices.Backward(s.applied) {
		_, err := s.c.Kubectl(context.Background(), []byte(manifest), "delete", "--ignore-not-found", "--timeout=1m",
			"-f", "-")
		s.must(err)
	}
}

func (s *space) awaitNoPods(ctx context.Context) error {
	return cluster.CountDown(ctx, "no pods are left in "+s.name, func(ctx context.Context) (int, error) {
		pods, err := s.c.Client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, err
		}
		return len(pods.Items), nil
	})
}

func (s *space) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// podSpec returns the spec of a pod that runs e2e-pod serve on a node, or on any node if it is "".
func podSpec(node string) corev1.PodSpec {
	grace := int64(2)
	asks := false
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &asks, // it does not use the API server
		Containers: []corev1.Container{{
			Name: "e2e-pod", Image: cluster.PodImage, ImagePullPolicy: corev1.PullNever, Args: []string{"serve"},
		}},
	}
	if node != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return spec
}

// create makes a pod that serves, with its own name as label app.
func (s *space) create(name, node string) {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       podSpec(node),
	}
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{})
	s.must(err)
}

// run makes a pod and waits until it is ready.
func (s *space) run(name, node string) *corev1.Pod {
	s.t.Helper()
	s.create(name, node)
	return s.ready(name)
}

// pair makes a client and a server concurrently, and waits until both are ready.
func (s *space) pair(clientNode, serverNode string) (client, server *corev1.Pod) {
	s.t.Helper()
	s.create("client", clientNode)
	s.create("server", serverNode)
	return s.ready("client"), s.ready("server")
}

// ready waits until a pod is ready.
func (s *space) ready(name string) (pod *corev1.Pod) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), name+" is ready", func(ctx context.Context) error {
		var err error
		if pod, err = s.c.Client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !isReady(pod) {
			return fmt.Errorf("the pod is %s: %s", pod.Status.Phase, s.lastEvent(ctx, name))
		}
		return nil
	}))
	return pod
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// lastEvent returns the last Event of a pod.
func (s *space) lastEvent(ctx context.Context, pod string) string {
	events, err := s.c.Client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.name", pod).String(),
	})
	if err != nil || len(events.Items) == 0 {
		return "no Event"
	}
	last := events.Items[0]
	for _, event := range events.Items {
		if event.LastTimestamp.After(last.LastTimestamp.Time) {
			last = event
		}
	}
	return last.Message
}

// exec runs e2e-pod in a pod and fails the test on an error.
func (s *space) exec(pod *corev1.Pod, arguments ...string) string {
	s.t.Helper()
	out, err := s.c.Exec(s.t.Context(), pod, arguments...)
	s.must(err)
	return out
}

// addresses returns a pod's addresses, which must be one of each family.
func (s *space) addresses(pod *corev1.Pod) (all []netip.Addr) {
	s.t.Helper()
	for _, ip := range pod.Status.PodIPs {
		address, err := netip.ParseAddr(ip.IP)
		s.must(err)
		all = append(all, address)
	}
	if len(all) != 2 || !all[0].Is4() || !all[1].Is6() {
		s.t.Fatalf("%s has the addresses %v, want one of each family", pod.Name, all)
	}
	return all
}
