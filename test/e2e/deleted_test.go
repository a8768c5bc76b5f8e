package e2e_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the power cut kept kubelet from stopping it collects within a minute, which is over when a later test looks whether
// anything is left, or the run does at its end.
func TestANodeThatWasDeletedJoinsAgain(t *testing.T) {
	s := newSpace(t)
	s.create("doomed", "n2")
	client := s.run("client", "n1")
	s.ready("doomed")
	n := s.c.Node("n2")
	s.must(n.Cut())
	s.must(s.c.Client.CoreV1().Nodes().Delete(t.Context(), n.Name, metav1.DeleteOptions{}))
	// The garbage collector would do the same after a minute.
	now := metav1.NewDeleteOptions(0)
	s.must(s.c.Client.CoreV1().Pods(s.name).Delete(t.Context(), "doomed", *now))
	s.must(n.UpBeforeServices(t.Context(), 3*time.Second)) // which its agent is started before
	server := s.run("server", "n2")
	s.hasAddressesOf(server, n.Name)
	for _, address := range s.addresses(server) {
		s.reaches(client, server, address)
	}
	s.deleteAll()
	s.mustHoldNoAddresses()
}

// hasAddressesOf checks that a pod's addresses are of the ranges that Kubernetes gave its node.
func (s *space) hasAddressesOf(pod *corev1.Pod, node string) {
	s.t.Helper()
	n, err := s.c.Client.CoreV1().Nodes().Get(s.t.Context(), node, metav1.GetOptions{})
	s.must(err)
	for _, address := range s.addresses(pod) {
		if !slices.ContainsFunc(n.Spec.PodCIDRs, func(r string) bool { return netip.MustParsePrefix(r).Contains(address) }) {
			s.t.Errorf("%s has %s, and the ranges of %s are %v", pod.Name, address, node, n.Spec.PodCIDRs)
		}
	}
}
