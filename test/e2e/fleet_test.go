package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// fleet runs kubectl weft as the administrator, and returns its output.
func (s *space) fleet(arguments ...string) (string, error) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), "../../bin/kubectl-weft",
		append(arguments, "--kubeconfig", s.c.Control.Kubeconfig())...)
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	s.t.Logf("kubectl weft %s: %v\n%s%s", strings.Join(arguments, " "), err, out, complaints.String())
	return string(out), err
}

// kubectl weft runs weftctl in the agents' pods by the API server: on all nodes, on one, and on the node of a pod.
func TestKubectlWeftAsksTheAgentsOfAllNodes(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	a := s.run("a", "n2")
	// While another test makes a network, a node is not ready for a moment.
	s.must(cluster.Eventually(t.Context(), "the status is that of two ready nodes", func(context.Context) error {
		out, err := s.fleet("status")
		if err == nil && (!strings.HasPrefix(out, "2 nodes, 2 ready\n") || !strings.Contains(out, " leads\n")) {
			err = errors.New(out)
		}
		return err
	}))
	out, err := s.fleet("attachments", "-o", "json")
	s.must(err)
	var answers struct {
		Nodes []struct {
			Node   string
			Output struct {
				Attachments []struct {
					Pod struct{ Namespace, Name string }
				}
			}
		}
	}
	s.must(json.Unmarshal([]byte(out), &answers))
	var nodes []string
	for _, n := range answers.Nodes {
		for _, at := range n.Output.Attachments {
			if at.Pod.Namespace == s.name && at.Pod.Name == a.Name {
				nodes = append(nodes, n.Node)
			}
		}
	}
	if !slices.Equal(nodes, []string{"n2"}) {
		t.Errorf("the pod has attachments on %v", nodes)
	}
	out, err = s.fleet("counters", "--pod", s.name+"/a")
	s.must(err)
	if !strings.Contains(out, "eth0") {
		t.Errorf("counters:\n%s", out)
	}
	if _, err := s.fleet("resync"); err == nil {
		t.Error("a change runs without a choice of nodes")
	}
}

// kubectl weft check tests the cluster with pods of the Weft image, and leaves nothing.
func TestKubectlWeftCheckPassesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	out, err := s.fleet("check", "--node", "n1", "--node", "n2")
	s.must(err)
	for _, want := range []string{"other node", "tap0 IPv4 UDP", "veth0 IPv4 MTU", "memif0 IPv4 ping", " 0 failed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	s.must(cluster.Eventually(t.Context(), "nothing of the test is left", func(ctx context.Context) error {
		left, err := s.c.Kubectl(ctx, nil, "get", "customnetworks,namespaces", "-l", "contivpp.io/connectivity-test",
			"-o", "name")
		if err == nil && len(left) > 0 {
			return fmt.Errorf("left: %s", left)
		}
		return err
	}))
}

// The interfaces of a pod are an object without any setting.
func TestPodInterfacesAreWrittenByDefault(t *testing.T) {
	t.Parallel()
	needWeft(t)
	s := newSpace(t)
	s.run("a", "n1")
	out, err := s.c.Kubectl(t.Context(), nil, "-n", s.name, "wait", "--for=create", "podinterfaces/a", "--timeout=60s")
	s.must(err)
	t.Logf("%s", out)
	if _, err := s.c.Client.CoreV1().Pods(s.name).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
