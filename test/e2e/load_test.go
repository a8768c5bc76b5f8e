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
	"github.com/weftnet/weft/test/e2e/weft"
)

// Namespace and label of Weft's agents.
const (
	system = "weft-system"
	agents = "app.kubernetes.io/component=agent"
)

func TestTrafficContinuesWhileAgentsAreKilledAndUpgraded(t *testing.T) {
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
	first := s.installed("n2")
	conf := s.confFile("n2")
	s.install(weft.NextImage, "weft "+weft.NextVersion)
	s.run("after-the-upgrade", "n2")
	s.flows(load)
	s.install(weft.Image, first)
	s.run("after-the-way-back", "n2")
	s.flows(load)
	if now := s.confFile("n2"); now != conf {
		t.Errorf("the node's CNI configuration was rewritten: %s, before %s", now, conf)
	}
}

// install updates agent and plugin of all nodes to an image of the given version.
func (s *space) install(image, version string) {
	s.t.Helper()
	for _, arguments := range [][]string{
		{"set", "image", "daemonset/weft-agent", "*=" + image},
		{"rollout", "status", "daemonset/weft-agent", "--timeout=90s"},
	} {
		_, err := s.c.Kubectl(s.t.Context(), nil, append(arguments, "-n", system)...)
		s.must(err)
	}
	for _, n := range s.c.Nodes {
		s.must(cluster.Eventually(s.t.Context(), "the plugin of "+n.Name+" is that of "+image,
			func(context.Context) error {
				if is := s.installed(n.Name); is != version {
					return fmt.Errorf("the plugin is of %s", is)
				}
				return nil
			}))
	}
}

// installed returns the version that a node's plugin prints.
func (s *space) installed(node string) string {
	s.t.Helper()
	out, err := s.c.Node(node).Run(s.t.Context(), "/opt/cni/bin/weft-cni", "--version")
	s.must(err)
	return strings.TrimSpace(string(out))
}

// confFile returns inode and modification time of a node's CNI configuration.
func (s *space) confFile(node string) string {
	s.t.Helper()
	out, err := s.c.Node(node).Run(s.t.Context(), "/usr/bin/stat", "--format=inode %i of %y",
		"/etc/cni/net.d/10-weft.conflist")
	s.must(err)
	return strings.TrimSpace(string(out))
}

// endless makes a pod with a program that exits when a reply is lost.
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

// flows waits until each program has another reply; none may have exited.
func (s *space) flows(load []*corev1.Pod) {
	s.t.Helper()
	for _, pod := range load {
		before := s.lastAnswer(pod)
		s.must(cluster.Eventually(s.t.Context(), pod.Name+" gets another answer", func(context.Context) error {
			if now := s.lastAnswer(pod); now == before || now == "" {
				return fmt.Errorf("the last reply is %q", now)
			}
			return nil
		}))
	}
}

// lastAnswer returns the last line of a program of the load, which must be running.
func (s *space) lastAnswer(pod *corev1.Pod) string {
	s.t.Helper()
	one := int64(1)
	text, err := s.c.Client.CoreV1().Pods(s.name).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &one}).DoRaw(
		s.t.Context())
	s.must(err)
	now, err := s.c.Client.CoreV1().Pods(s.name).Get(s.t.Context(), pod.Name, metav1.GetOptions{})
	s.must(err)
	if now.Status.Phase != corev1.PodRunning {
		s.t.Fatalf("%s is %s; its output: %s", pod.Name, now.Status.Phase, text)
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

// killAgent kills the agent of a pod with SIGKILL.
func (s *space) killAgent(pod *corev1.Pod) {
	s.t.Helper()
	s.killContainer(pod.Spec.NodeName, agentOf(pod).id)
}

// killContainer kills the first process of a container.
func (s *space) killContainer(node, id string) {
	s.t.Helper()
	_, err := s.c.Node(node).Run(s.t.Context(), s.c.Programs().Path("ctr"), "--namespace=k8s.io", "tasks", "kill",
		"--signal=SIGKILL", id)
	s.must(err)
}

func (s *space) agents() []corev1.Pod {
	s.t.Helper()
	pods, err := s.c.Client.CoreV1().Pods(system).List(s.t.Context(), metav1.ListOptions{LabelSelector: agents})
	s.must(err)
	return pods.Items
}

// container returns the status of a pod's container.
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
