package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/weftnet/weft/test/e2e/cluster"
)

// Paths of weftctl on a node, and of the administrator's kubeconfig for the check of addresses.
const (
	weftctl    = "/usr/local/bin/weftctl"
	kubeconfig = "/etc/kubernetes/admin.kubeconfig"
)

// weftctl runs weftctl on a node.
func (s *space) weftctl(ctx context.Context, node string, answer any, arguments ...string) error {
	s.t.Helper()
	s.bring(node, "../../bin/weftctl", weftctl)
	out, err := s.c.Node(node).Run(ctx, weftctl, append(arguments, "-o", "json")...)
	if err != nil {
		return fmt.Errorf("weftctl %v: %w: %s", arguments, err, out)
	}
	return json.Unmarshal(out, answer)
}

// bring copies a file to a node that does not have it.
func (s *space) bring(node, from, to string) {
	s.t.Helper()
	n := s.c.Node(node)
	if n.Do(func() error { _, err := os.Stat(to); return err }) == nil {
		return
	}
	content, err := os.ReadFile(from)
	s.must(err)
	s.must(n.Write(to, content, 0o755))
}

// checkAddresses compares the addresses in the API server with those that each agent has allocated.
func (s *space) checkAddresses(ctx context.Context) error {
	s.t.Helper()
	for _, n := range s.c.Nodes {
		s.bring(n.Name, s.c.Control.Kubeconfig(), kubeconfig)
		var verdict struct{ Leases int }
		if err := s.weftctl(ctx, n.Name, &verdict, "addresses", "check", "--kubeconfig", kubeconfig, "--node",
			n.Name); err != nil {
			return err
		}
	}
	return nil
}

// mustLeaveNothing waits until no leftovers of pods exist, when there are no pods.
func (s *space) mustLeaveNothing() {
	s.t.Helper()
	s.must(s.c.AwaitNoLeftovers(s.t.Context()))
	s.mustHoldNoAddresses()
}

// mustHoldNoAddresses waits until every address is free, when there are no pods. Addresses of vanished sandboxes, and
// of networks and pools that were deleted recently, are freed later.
func (s *space) mustHoldNoAddresses() {
	s.t.Helper()
	if s.c.CNI().Name() != "weft" {
		return
	}
	for _, n := range s.c.Nodes {
		s.must(cluster.Eventually(s.t.Context(), "no pod has an address of "+n.Name, func(ctx context.Context) error {
			var output struct{ Leases []lease }
			if err := s.weftctl(ctx, n.Name, &output, "addresses"); err != nil {
				return err
			}
			output.Leases = slices.DeleteFunc(output.Leases, func(l lease) bool {
				return l.State != "used" && l.State != "leased"
			})
			if len(output.Leases) > 0 {
				return fmt.Errorf("leases: %+v", output.Leases)
			}
			return nil
		}))
	}
	s.must(cluster.Eventually(s.t.Context(), "the addresses of the cluster are valid", s.checkAddresses))
}

// lease is a lease in the output of weftctl.
type lease struct{ Address, State, Holder string }
