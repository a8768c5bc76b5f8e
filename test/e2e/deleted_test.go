package e2e_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet's cleanup of the pods of before the power cut takes up to a minute; later tests, or the end of the run, check
// that nothing is left over.
func TestDeletedNodeJoinsAgain(t *testing.T) {
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
	s.must(n.UpBeforeServices(t.Context(), 3*time.Second)) // its agent starts before kube-proxy
	server := s.run("server", "n2")
	s.hasAddressesOf(server, n.Name)
	for _, address := range s.addresses(server) {
		s.reaches(client, server, address)
	}
	s.deleteAll()
	s.mustHoldNoAddresses()
}

// hasAddressesOf checks that a pod's addresses are in the node's ranges.
func (s *space) hasAddressesOf(pod *corev1.Pod, node string) {
	s.t.Helper()
	n, err := s.c.Client.CoreV1().Nodes().Get(s.t.Context(), node, metav1.GetOptions{})
	s.must(err)
	for _, address := range s.addresses(pod) {
		if !slices.ContainsFunc(n.Spec.PodCIDRs, func(r string) bool {
			return netip.MustParsePrefix(r).Contains(address)
		}) {
			s.t.Errorf("%s has %s, outside of the ranges of %s: %v", pod.Name, address, node, n.Spec.PodCIDRs)
		}
	}
}
