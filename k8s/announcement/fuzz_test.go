package announcement_test

import (
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/pod"
)

// FuzzAccept makes node n2 of the cluster known() announce anything. Only the prefixes of this list are accepted.
func FuzzAccept(f *testing.F) {
	granted := map[string][]netip.Prefix{ // by network; of single addresses of podCIDRs also every part
		"default": {
			prefix("10.244.2.0/24"), prefix("fd00:244:2::/64"), prefix("10.9.2.0/26"), prefix("fd00:9::40/122"),
			prefix("10.9.3.7/32"),
		},
		"blue":  {prefix("10.5.2.0/26")},
		"reuse": {prefix("192.0.2.0/28")},
	}
	for _, a := range attacks {
		f.Add(a.network, a.cidr, "192.0.2.2")
	}
	for network, prefixes := range granted {
		for _, p := range prefixes {
			f.Add(network, p.String(), p.Addr().String())
		}
	}
	f.Fuzz(func(t *testing.T, network, cidr, address string) {
		n := &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: v1.NodeNetworkSpec{
			Addresses: []v1.IP{v1.IP(address)},
			Networks:  []v1.NodePart{{Name: network, CIDRs: []v1.CIDR{v1.CIDR(cidr)}}},
		}}
		node, rejected := announcement.NewValidator(known()).Accept(n)
		for _, a := range node.Addresses {
			if !slices.Contains(known().Nodes["n2"].Addresses, a) {
				t.Errorf("%q is used as endpoint %v", address, a)
			}
		}
		used := len(node.Addresses)
		for _, part := range node.Parts {
			used += len(part.Blocks)
			for _, p := range part.Blocks {
				if !isGranted(granted, part, p) {
					t.Errorf("%q of network %q is used as %v", cidr, network, p)
				}
			}
		}
		if used+len(rejected) != 2 {
			t.Errorf("%d parts are used and %d rejected of 2", used, len(rejected))
		}
		for _, r := range rejected {
			if len(r.What) > 43 || r.Reason == "" {
				t.Errorf("rejection %+v", r)
			}
		}
	})
}

// isGranted reports whether the list has a prefix, or, of podCIDRs, one around it.
func isGranted(granted map[string][]netip.Prefix, part pod.NodePart, p netip.Prefix) bool {
	return slices.ContainsFunc(granted[part.Network], func(g netip.Prefix) bool {
		ofNode := g == prefix("10.244.2.0/24") || g == prefix("fd00:244:2::/64")
		return g == p || ofNode && g.Bits() <= p.Bits() && g.Contains(p.Addr()) && p == p.Masked()
	})
}
