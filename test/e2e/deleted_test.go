package e2e_test

import (
	"testing"

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
	s.must(n.Up(t.Context()))
	server := s.run("server", "n2")
	for _, address := range s.addresses(server) {
		s.reaches(client, server, address)
	}
	s.deleteAll()
	s.mustHoldNoAddresses()
}
