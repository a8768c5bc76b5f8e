package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
	"github.com/weftnet/weft/test/e2e/weft"
)

// Kubelet restarts a killed dataplane, and the agent configures it: pods are not replaced, and reach each other again.
func TestPodsSurviveAKillOfTheirNodesDataplane(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, server := s.pair("n1", "n2")
	before := s.dataplane(t.Context(), "n2")
	was := before.Status.ContainerStatuses[0]
	s.killContainer("n2", strings.TrimPrefix(was.ContainerID, "containerd://"))
	s.must(cluster.Eventually(t.Context(), "kubelet restarts the dataplane", func(ctx context.Context) error {
		now := s.dataplane(ctx, "n2").Status.ContainerStatuses[0]
		if now.RestartCount != was.RestartCount+1 || !now.Ready {
			return fmt.Errorf("status of the container: %+v", now)
		}
		return nil
	}))
	for _, address := range s.addresses(server) {
		s.must(cluster.Eventually(t.Context(), "the client reaches "+address.String()+" again",
			func(ctx context.Context) error {
				_, err := s.c.Exec(ctx, client, "ping", address.String(), "3")
				return err
			}))
		s.reaches(client, server, address)
	}
	s.unharmed(t, server)
	s.run("new", "n2")
	s.deleteAll()
	s.mustLeaveNothing()
}

// A rollout of weft-vswitch starts the new pod beside the old one, so its outage is shorter than after a deletion of
// the old pod.
func TestRolloutOfTheDataplaneCausesAShorterOutageThanADeletion(t *testing.T) {
	needWeft(t)
	if weft.OnVPP() {
		t.Skip("VPP has no standby")
	}
	s := newSpace(t)
	server := s.run("server", "n2")
	address := s.addresses(server)[0].String()
	load := s.endless("n2", "outages", address, "10ms")
	load = s.ready(load.Name)
	former := s.dataplane(t.Context(), "n2")
	for _, arguments := range [][]string{
		{"rollout", "restart", "daemonset/weft-vswitch"},
		{"rollout", "status", "daemonset/weft-vswitch", "--timeout=90s"},
	} {
		_, err := s.c.Kubectl(t.Context(), nil, append(arguments, "-n", system)...)
		s.must(err)
	}
	now := s.successor(former)
	byRollout := s.outages(load, address)
	output, err := s.c.Client.CoreV1().Pods(system).GetLogs(now.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	s.must(err)
	if !strings.Contains(string(output), "standby takes over") || !strings.Contains(string(output), former.Name) {
		t.Errorf("the new pod did not wait for %s: %s", former.Name, output)
	}
	s.must(s.c.Client.CoreV1().Pods(system).Delete(t.Context(), now.Name, metav1.DeleteOptions{}))
	s.successor(now)
	byDeletion := s.outages(load, address)[len(byRollout):]
	t.Logf("outages by a rollout %s, by a deletion %s", byRollout, byDeletion)
	longest := slices.Max(append([]time.Duration{0}, byRollout...)) // 0: no echo was lost during the handover
	if len(byDeletion) == 0 || longest >= slices.Max(byDeletion) {
		t.Errorf("outages by a rollout %s, by a deletion %s", byRollout, byDeletion)
	}
	s.unharmed(t, server)
	s.run("new", "n2")
	s.deleteAll()
	s.mustLeaveNothing()
}

// successor waits until another pod is the only dataplane of a node, and ready.
func (s *space) successor(former *corev1.Pod) (now *corev1.Pod) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), former.Name+" has a successor", func(ctx context.Context) error {
		pods := s.dataplanes(ctx, former.Spec.NodeName)
		if len(pods) != 1 || pods[0].UID == former.UID || !isReady(&pods[0]) {
			return fmt.Errorf("the node has %d dataplanes", len(pods))
		}
		now = &pods[0]
		return nil
	}))
	return now
}

// outages waits until a pod that prints outages reaches the address for some time, and returns all outages. A busy node
// causes short ones too.
func (s *space) outages(pod *corev1.Pod, address string) (all []time.Duration) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), "the pod reaches "+address+" again", func(ctx context.Context) error {
		_, err := s.c.Exec(ctx, pod, "ping", address, "50", "10ms")
		return err
	}))
	text, err := s.c.Client.CoreV1().Pods(s.name).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(s.t.Context())
	s.must(err)
	for line := range strings.Lines(string(text)) {
		var lasted string
		var lost int
		_, err := fmt.Sscanf(line, "outage %s lost %d", &lasted, &lost)
		s.must(err)
		outage, err := time.ParseDuration(lasted)
		s.must(err)
		all = append(all, outage)
	}
	return all
}

// dataplane returns the pod of a node's dataplane: weft-vswitch or VPP.
func (s *space) dataplane(ctx context.Context, node string) *corev1.Pod {
	s.t.Helper()
	pods := s.dataplanes(ctx, node)
	if len(pods) != 1 || len(pods[0].Status.ContainerStatuses) != 1 {
		s.t.Fatalf("dataplanes on %s: %+v", node, pods)
	}
	return &pods[0]
}

func (s *space) dataplanes(ctx context.Context, node string) []corev1.Pod {
	s.t.Helper()
	pods, err := s.c.Client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component in (vswitch, vpp)", FieldSelector: "spec.nodeName=" + node,
	})
	s.must(err)
	return pods.Items
}
