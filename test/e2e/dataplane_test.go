package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// A dataplane that is killed is started again by kubelet, and the agent configures it anew: pods are not replaced, and reach each
// other again.
func TestPodsOutliveTheDataplaneOfTheirNode(t *testing.T) {
	needWeft(t)
	s := newSpace(t)
	client, server := s.pair("n1", "n2")
	before := s.dataplane(t.Context(), "n2")
	was := before.Status.ContainerStatuses[0]
	s.killContainer("n2", strings.TrimPrefix(was.ContainerID, "containerd://"))
	s.must(cluster.Eventually(t.Context(), "kubelet starts the dataplane again", func(ctx context.Context) error {
		now := s.dataplane(ctx, "n2").Status.ContainerStatuses[0]
		if now.RestartCount != was.RestartCount+1 || !now.Ready {
			return fmt.Errorf("the container %+v", now)
		}
		return nil
	}))
	for _, address := range s.addresses(server) {
		s.must(cluster.Eventually(t.Context(), "the client reaches "+address.String()+" again", func(ctx context.Context) error {
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

// dataplane is the pod of a node's dataplane: weft-vswitch or VPP.
func (s *space) dataplane(ctx context.Context, node string) *corev1.Pod {
	s.t.Helper()
	pods, err := s.c.Client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component in (vswitch, vpp)", FieldSelector: "spec.nodeName=" + node,
	})
	s.must(err)
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		s.t.Fatalf("dataplanes on %s: %+v", node, pods.Items)
	}
	return &pods.Items[0]
}
