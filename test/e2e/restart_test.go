package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

func TestPodsKeepRunningWhileDaemonsOfTheirNodeRestart(t *testing.T) {
	cases := map[string]func(ctx context.Context, n *cluster.Node) error{
		"kubelet restarts": func(ctx context.Context, n *cluster.Node) error { return n.Kubelet.Restart(ctx) },
		"kubelet is killed": func(_ context.Context, n *cluster.Node) error {
			return errors.Join(n.Kubelet.Kill(), n.Kubelet.Start())
		},
		"containerd restarts": func(ctx context.Context, n *cluster.Node) error { return n.Containerd.Restart(ctx) },
		"containerd is killed": func(_ context.Context, n *cluster.Node) error {
			return errors.Join(n.Containerd.Kill(), n.Containerd.Start())
		},
		"kube-proxy is killed": func(_ context.Context, n *cluster.Node) error {
			return errors.Join(n.Proxy.Kill(), n.Proxy.Start())
		},
	}
	s := newSpace(t)
	client, server := s.pair("n1", "n2")
	for name, disturb := range cases {
		t.Run(name, func(t *testing.T) {
			n := s.c.Node("n2")
			if err := disturb(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			for _, wait := range []func(context.Context) error{n.AwaitContainerd, n.AwaitKubelet, n.AwaitReady} {
				if err := wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.unharmed(t, server)
			for _, address := range s.addresses(server) {
				s.reaches(client, server, address)
			}
		})
	}
	s.run("new", "n2")
}

// unharmed checks that a pod is the same as before, without a restart.
func (s *space) unharmed(t *testing.T, before *corev1.Pod) {
	t.Helper()
	now := s.ready(before.Name)
	if now.UID != before.UID || now.Status.PodIP != before.Status.PodIP {
		t.Errorf("%s was replaced", before.Name)
	}
	for _, status := range now.Status.ContainerStatuses {
		if status.RestartCount != 0 {
			t.Errorf("%s restarted %d times: %s", before.Name, status.RestartCount,
				s.lastWords(before.Name, status.Name))
		}
	}
}

// lastWords returns the end of the log of a container's former program.
func (s *space) lastWords(pod, container string) string {
	lines := int64(2)
	options := corev1.PodLogOptions{Container: container, Previous: true, TailLines: &lines, Timestamps: true}
	log, err := s.c.Client.CoreV1().Pods(s.name).GetLogs(pod, &options).DoRaw(s.t.Context())
	return fmt.Sprintf("%s: %q, %v", container, log, err)
}

func TestPodsRestartAfterAPowerCut(t *testing.T) {
	s := newSpace(t)
	client, before := s.pair("n1", "n2")
	n := s.c.Node("n2")
	s.must(n.Reboot(t.Context()))
	server := s.restarted(before)
	if server.UID != before.UID {
		t.Error("the pod was replaced")
	}
	for _, address := range s.addresses(server) {
		s.reaches(client, server, address)
		s.reaches(server, client, s.sameFamily(client, address))
	}
	s.deleteAll()
	s.mustLeaveNothing()
}

// restarted waits until a pod runs again after its containers have ended.
func (s *space) restarted(before *corev1.Pod) (now *corev1.Pod) {
	s.t.Helper()
	s.must(cluster.Eventually(s.t.Context(), before.Name+" runs again", func(ctx context.Context) (err error) {
		if now, err = s.c.Client.CoreV1().Pods(s.name).Get(ctx, before.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !isReady(now) || now.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("the pod is %s: %s", now.Status.Phase, s.lastEvent(ctx, before.Name))
		}
		return nil
	}))
	return now
}

func (s *space) deleteAll() {
	s.t.Helper()
	s.must(s.c.Client.CoreV1().Pods(s.name).DeleteCollection(s.t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}))
	s.must(s.awaitNoPods(s.t.Context()))
}

func TestPodsReachEachOtherWhileTheAPIServerIsDown(t *testing.T) {
	s := newSpace(t)
	client, server := s.pair("n1", "n2")
	control := s.c.Control
	s.must(control.APIServer.Kill())
	for _, n := range s.c.Nodes {
		s.must(n.Kubelet.Restart(t.Context())) // running pods do not need the API server
	}
	s.must(cluster.Eventually(t.Context(), "a node reaches a pod", func(ctx context.Context) error {
		page, err := fetchFrom(ctx, s.c.Node("n1"), "http://"+server.Status.PodIP+":8080")
		return isFrom(server, page, err)
	}))
	s.must(control.APIServer.Start())
	s.must(control.AwaitAPI(t.Context()))
	for _, n := range s.c.Nodes {
		s.must(n.AwaitReady(t.Context()))
	}
	s.unharmed(t, server)
	s.must(cluster.Eventually(t.Context(), "kubelet knows its pods again", func(ctx context.Context) error {
		_, err := s.c.Exec(ctx, client, "links")
		return err
	}))
	s.reaches(client, server, s.addresses(server)[0])
	s.run("new", "n2")
}
