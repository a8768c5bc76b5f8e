package ipnet_test

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/pod"
)

// The author of a NetworkAttachmentDefinition chooses the mode, the IPAM plugin and its addresses. The node and the
// dataplane would route the address of a machine, or of another node's pod, to this pod.
func TestAnotherIPAMPluginDoesNotGiveTheAddressOfAMachine(t *testing.T) {
	for _, address := range []string{"8.8.8.8/32", "192.0.2.10/24", "10.1.0.20/24", "2001:db8::8/64"} {
		for _, mode := range []string{pod.ModePrimary, pod.ModeDelegate} {
			n := newNode(t, four, six).run(t)
			before := list(t, n.committer.Values())
			ev := delegated(foreign("a", address))
			ev.Mode = mode
			ev.Requested.Network = pod.DefaultNetwork
			checkRefusal(t, n.refuses(t, ev), pod.CodeInvalidConfig,
				"which is outside the node's pools and delegatedCIDRs")
			if after := list(t, n.committer.Values()); after != before {
				t.Errorf("%s in mode %s left\n%s, was\n%s", address, mode, after, before)
			}
		}
	}
}

func TestAnotherIPAMPluginGivesAddressesOfPermittedRanges(t *testing.T) {
	for _, address := range []string{"10.1.0.7/24", "10.7.0.5/24", "fd00:7::5/64"} {
		n := newNode(t, four, six).run(t)
		a := n.add(t, delegated(foreign("a", address)))
		want := netip.MustParsePrefix(address).Addr()
		if got := a.Interfaces[0].Addresses; len(got) != 1 || got[0].Addr() != want {
			t.Errorf("%s: the pod has %s", address, got)
		}
	}
}
