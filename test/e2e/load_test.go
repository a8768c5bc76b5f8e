package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// Where Weft's agents run, and their label.
const (
	system = "weft-system"
	agents = "app.kubernetes.io/component=agent"
)

func TestTrafficGoesOnWhileAgentsAreKilledAndReplaced(t *testing.T) {
	s := newSpace(t)
	if s.c.CNI().Name() != "weft" {
		t.Skip("the peer has no agent")
	}
	server := s.run("server", "n2")
	var load []*corev1.Pod
	for _, node := range []string{"n1", "n2"} {
		for _, address := range s.addresses(server) {
			load = append(load,
				s.endless(node, "ping", address.String(), "0", "5ms"),
				s.endless(node, "stream", netip.AddrPortFrom(address, 7).String(), "5ms"))
		}
	}
	for i, pod := range load {
		load[i] = s.ready(pod.Name)
	}
	s.flows(load)
	s.killAgents()
	s.run("after-the-kill", "n1")
	s.flows(load)
	for _, verb := range [][]string{{"restart"}, {"status", "--timeout=90s"}} {
		_, err := s.c.Kubectl(t.Context(), nil, append([]string{"rollout", verb[0], "daemonset/weft-agent", "-n", system}, verb[1:]...)...)
		s.must(err)
	}
	s.run("after-the-replacement", "n2")
	s.flows(load)
}

// endless makes a pod whose program ends when something is lost.
func (s *space) endless(node string, arguments ...string) *corev1.Pod {
	s.t.Helper()
	spec := podSpec(node)
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.Containers[0].Args = arguments
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: arguments[0] + "-"}, Spec: spec}
	pod, err := s.c.Client.CoreV1().Pods(s.name).Create(s.t.Context(), pod, metav1.CreateOptions{})
	s.must(err)
	return pod
}

// flows waits until each program has got another answer; none may have ended.
func (s *space) flows(load []*corev1.Pod) {
	s.t.Helper()
	for _, pod := range load {
		before := s.lastAnswer(pod)
		s.must(cluster.Eventually(s.t.Context(), pod.Name+" gets another answer", func(context.Context) error {
			if now := s.lastAnswer(pod); now == before || now == "" {
				return fmt.Errorf("the last is %q", now)
			}
			return nil
		}))
	}
}

// lastAnswer is the last that a program of the load said, which has not ended.
func (s *space) lastAnswer(pod *corev1.Pod) string {
	s.t.Helper()
	one := int64(1)
	text, err := s.c.Client.CoreV1().Pods(s.name).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &one}).DoRaw(s.t.Context())
	s.must(err)
	now, err := s.c.Client.CoreV1().Pods(s.name).Get(s.t.Context(), pod.Name, metav1.GetOptions{})
	s.must(err)
	if now.Status.Phase != corev1.PodRunning {
		s.t.Fatalf("%s is %s; it said: %s", pod.Name, now.Status.Phase, text)
	}
	return string(text)
}

// killAgents kills the agent of each node and waits until it is ready again.
func (s *space) killAgents() {
	s.t.Helper()
	before := s.agents()
	for _, pod := range before {
		s.killAgent(&pod)
	}
	s.must(cluster.Eventually(s.t.Context(), "killed agents are ready again", func(context.Context) error {
		now := map[string]container{}
		for _, pod := range s.agents() {
			now[pod.Name] = agentOf(&pod)
		}
		for _, pod := range before {
			if was, is := agentOf(&pod), now[pod.Name]; is.restarts <= was.restarts || !is.ready {
				return errors.New(pod.Name + " is not")
			}
		}
		return nil
	}))
}

// killAgent kills the agent of a pod, as kubelet would not.
func (s *space) killAgent(pod *corev1.Pod) {
	s.t.Helper()
	_, err := s.c.Node(pod.Spec.NodeName).Run(s.t.Context(), s.c.Programs().Path("ctr"), "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", agentOf(pod).id)
	s.must(err)
}

func (s *space) agents() []corev1.Pod {
	s.t.Helper()
	pods, err := s.c.Client.CoreV1().Pods(system).List(s.t.Context(), metav1.ListOptions{LabelSelector: agents})
	s.must(err)
	return pods.Items
}

// container is what is known of one of a pod's.
type container struct {
	id       string
	restarts int32
	ready    bool
}

func agentOf(pod *corev1.Pod) container {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == "agent" {
			return container{strings.TrimPrefix(status.ContainerID, "containerd://"), status.RestartCount, status.Ready}
		}
	}
	return container{}
}
