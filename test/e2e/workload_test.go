package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// crowd is the number of concurrent pods.
var crowd = weft.Crowd(100, 16)

func TestDaemonSetRunsOnEveryNode(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	var nodes []string
	for _, pod := range s.everywhere("everywhere") {
		nodes = append(nodes, pod.Spec.NodeName)
	}
	slices.Sort(nodes)
	if got := slices.Compact(nodes); len(got) != len(s.c.Nodes) {
		t.Errorf("its pods run only on %v", got)
	}
}

// everywhere makes a pod on each node, by a DaemonSet, and waits until they are ready.
func (s *space) everywhere(app string) []corev1.Pod {
	s.t.Helper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: podTemplate(app),
	}}
	_, err := s.c.Client.AppsV1().DaemonSets(s.name).Create(s.t.Context(), set, metav1.CreateOptions{})
	s.must(err)
	return s.awaitReadyOf("app="+app, len(s.c.Nodes))
}

func podTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       podSpec(""),
	}
}

func TestManyConcurrentPodsLeaveNothing(t *testing.T) {
	s := newSpace(t)
	s.deploy("crowd")
	started := time.Now()
	s.scale("crowd", int32(crowd))
	pods := s.awaitReady(crowd)
	t.Logf("%s: %d concurrent pods: %.1f a second", s.c.CNI().Name(), crowd,
		float64(crowd)/time.Since(started).Seconds())
	seen := map[string]string{}
	for _, pod := range pods {
		for _, address := range s.addresses(&pod) {
			if other := seen[address.String()]; other != "" {
				t.Errorf("%s and %s have the same address %s", pod.Name, other, address)
			}
			seen[address.String()] = pod.Name
		}
	}
	started = time.Now()
	s.scale("crowd", 0)
	s.must(s.awaitNoPods(t.Context()))
	t.Logf("%s: %d pods deleted after %s", s.c.CNI().Name(), crowd, time.Since(started).Round(time.Millisecond))
	s.mustLeaveNothing()
}

// deploy makes a deployment with zero replicas.
func (s *space) deploy(name string) {
	s.t.Helper()
	none := int32(0)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &none,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Template: podTemplate(name),
	}}
	_, err := s.c.Client.AppsV1().Deployments(s.name).Create(s.t.Context(), deployment, metav1.CreateOptions{})
	s.must(err)
}

func (s *space) scale(deployment string, pods int32) {
	s.t.Helper()
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: deployment, Namespace: s.name},
		Spec:       autoscalingv1.ScaleSpec{Replicas: pods},
	}
	_, err := s.c.Client.AppsV1().Deployments(s.name).UpdateScale(s.t.Context(), deployment, scale,
		metav1.UpdateOptions{})
	s.must(err)
}

// awaitReady waits until the given number of pods of the space are ready, and returns them.
func (s *space) awaitReady(count int) []corev1.Pod {
	s.t.Helper()
	return s.awaitReadyOf("", count)
}

// awaitReadyOf waits until the given number of pods with a label are ready, and returns them; "" = any label.
func (s *space) awaitReadyOf(label string, count int) (ready []corev1.Pod) {
	s.t.Helper()
	s.must(cluster.CountDown(s.t.Context(), fmt.Sprintf("%d pods are ready in %s", count, s.name),
		func(ctx context.Context) (int, error) {
			pods, err := s.c.Client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: label})
			if err != nil {
				return 0, err
			}
			ready = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
				return !isReady(&pod) || pod.DeletionTimestamp != nil
			})
			return max(count-len(ready), len(ready)-count), nil
		}))
	return ready
}

// The name of a StatefulSet's pod is reused while kubelet still knows the old pod.
func TestStatefulPodIsRecreatedWhileItsOldSandboxExists(t *testing.T) {
	s := newSpace(t)
	one := int32(1)
	n := s.c.Node("n1")
	template := podTemplate("web")
	template.Spec = podSpec(n.Name)
	_, err := s.c.Client.AppsV1().StatefulSets(s.name).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "web",
			Replicas:    &one,
			Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template:    template,
		},
	}, metav1.CreateOptions{})
	s.must(err)
	old := s.awaitReady(1)[0]
	client := s.run("client", "n2")
	s.must(n.Kubelet.Freeze())
	t.Cleanup(func() { s.must(n.Kubelet.Thaw()) })
	s.must(s.c.Client.CoreV1().Pods(s.name).Delete(t.Context(), old.Name, *metav1.NewDeleteOptions(0)))
	s.must(cluster.Eventually(t.Context(), old.Name+" is recreated", func(ctx context.Context) error {
		pod, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, old.Name, metav1.GetOptions{})
		if err == nil && pod.UID == old.UID {
			return fmt.Errorf("it is still the old pod")
		}
		return err
	}))
	s.must(n.Kubelet.Thaw())
	again := s.ready(old.Name)
	for _, address := range s.addresses(again) {
		s.reaches(client, again, address)
	}
	s.scaleStateful("web", 0)
	s.deleteAll()
	s.mustLeaveNothing()
}

func (s *space) scaleStateful(set string, pods int32) {
	s.t.Helper()
	scale := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: set, Namespace: s.name},
		Spec:       autoscalingv1.ScaleSpec{Replicas: pods},
	}
	_, err := s.c.Client.AppsV1().StatefulSets(s.name).UpdateScale(s.t.Context(), set, scale, metav1.UpdateOptions{})
	s.must(err)
}
