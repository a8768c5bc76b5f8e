package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// Kubelet restarts a killed agent and keeps the last lines of its log. The installer, the node's pods and the node's
// readiness are not affected.
func TestKilledAgentIsRestarted(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, server := s.pair("n2", "n1")
	before := s.agentPod(t.Context(), "n1")
	since := s.readySince("n1")
	s.killAgent(before)
	s.must(cluster.Eventually(t.Context(), "kubelet restarts the agent", func(ctx context.Context) error {
		now := s.agentPod(ctx, "n1")
		was := statusOf(before, "agent")
		is := statusOf(now, "agent")
		ended := is.LastTerminationState.Terminated
		switch {
		case is.RestartCount != was.RestartCount+1 || !is.Ready || ended == nil:
			return fmt.Errorf("status of the container: %+v", is)
		case ended.ExitCode == 0:
			return errors.New("the exit code of the killed agent is 0")
		case statusOf(now, "install").RestartCount != statusOf(before, "install").RestartCount:
			return errors.New("kubelet restarted the installer too")
		}
		return nil
	}))
	log, err := s.c.Client.CoreV1().Pods(before.Namespace).
		GetLogs(before.Name, &corev1.PodLogOptions{Container: "agent", Previous: true}).DoRaw(t.Context())
	s.must(err)
	if !strings.Contains(string(log), `msg="agent ready"`) {
		t.Errorf("log of the killed agent:\n%s", log)
	}
	s.unharmed(t, server)
	for _, address := range s.addresses(server) {
		s.reaches(client, server, address)
	}
	s.run("new", "n1")
	if now := s.readySince("n1"); !now.Equal(&since) {
		t.Errorf("the node is ready since %s, before it was ready since %s: it was not ready in between", now, since)
	}
}

// readySince returns when a node became ready; the node has to be ready.
func (s *space) readySince(name string) metav1.Time {
	s.t.Helper()
	n, err := s.c.Client.CoreV1().Nodes().Get(s.t.Context(), name, metav1.GetOptions{})
	s.must(err)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	s.t.Fatalf("node %s is not ready: %+v", name, n.Status.Conditions)
	return metav1.Time{}
}

// agentPod returns the pod of a node's agent.
func (s *space) agentPod(ctx context.Context, node string) *corev1.Pod {
	s.t.Helper()
	pods, err := s.c.Client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{
		LabelSelector: agents,
		FieldSelector: "spec.nodeName=" + node,
	})
	s.must(err)
	if len(pods.Items) != 1 {
		s.t.Fatalf("%d agents on %s", len(pods.Items), node)
	}
	return &pods.Items[0]
}

func statusOf(pod *corev1.Pod, container string) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container {
			return status
		}
	}
	return corev1.ContainerStatus{}
}
