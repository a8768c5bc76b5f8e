package announcement_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// reporting is the cluster known() in which the kubelet of n2 reports further InternalIPs.
func reporting(addresses ...string) announcement.Cluster {
	cluster := known()
	thief := cluster.Nodes["n2"]
	for _, a := range addresses {
		thief.Addresses = append(thief.Addresses, netip.MustParseAddr(a))
	}
	cluster.Nodes["n2"] = thief
	return cluster
}

// announcement of a node with an address of its own, and with prefixes of the default network.
func announcedBy(node string, addresses []v1.IP, cidrs ...v1.CIDR) *v1.NodeNetwork {
	return &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1.NodeNetworkSpec{
		NodeID:          3,
		NodeIDConfirmed: true,
		Addresses:       addresses,
		Networks:        []v1.NodePart{{Name: "default", CIDRs: cidrs}},
	}}
}

// The kubelet of a node writes the InternalIPs of its Node. What one node says harms that node only.
func TestAnInternalIPInAPrefixOfAnotherNodeHarmsTheNodeThatReportsItOnly(t *testing.T) {
	for _, tt := range []struct {
		what, address string
		victim        string
		cidr          v1.CIDR // that the victim announces
		reason        string
	}{
		{
			"an address of a podCIDR", "10.244.3.7", "n3", "10.244.3.0/24",
			"it is in the podCIDR 10.244.3.0/24 of node n3",
		},
		{
			"an address of a podCIDR, of which a part is announced", "10.244.3.7", "n3", "10.244.3.7/32",
			"it is in the podCIDR 10.244.3.0/24 of node n3",
		},
		{"an address of a block", "10.9.3.5", "n3", "10.9.3.0/26", "it is in IPBlock 10.9.3.0-26 of node n3"},
		{
			"an address that another node borrows", "10.9.3.8", "n1", "10.9.3.8/32",
			"it is in a loan of IPBlock 10.9.3.0-26 of node n1",
		},
		{
			"an address that it borrows itself", "10.9.3.7", "n3", "10.9.3.0/26",
			"it is in IPBlock 10.9.3.0-26 of node n3",
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			v := announcement.NewValidator(reporting(tt.address))
			node, rejected := v.Accept(announcedBy(tt.victim, nil, tt.cidr))
			if len(rejected) > 0 || fmt.Sprint(node.Parts) != fmt.Sprintf("[{default [%s] []}]", tt.cidr) {
				t.Errorf("of %s remain %v, rejected: %v", tt.victim, node.Parts, rejected)
			}
			node, rejected = v.Accept(announcedBy("n2", []v1.IP{v1.IP(tt.address), "2001:db8::2"}, "10.244.2.0/24"))
			if fmt.Sprint(node.Addresses) != "[2001:db8::2]" || len(node.Parts[0].Blocks) != 1 {
				t.Errorf("of n2 remain %+v", node)
			}
			if len(rejected) != 1 || !strings.Contains(rejected[0].String(), tt.reason) {
				t.Errorf("rejected %v, want the reason %q", rejected, tt.reason)
			}
		})
	}
}

// A block whose pool was deleted is still granted.
func TestAnInternalIPInABlockOfADeletedPoolHarmsTheNodeThatReportsItOnly(t *testing.T) {
	c := reporting("10.9.3.5")
	c.Former = announcement.Former{}.Learn(c)
	c.Pools = nil
	c.Former = c.Former.Learn(c)
	v := announcement.NewValidator(c)
	if used := v.Used(); len(used.Blocks) > 0 {
		t.Errorf("before any announcement former grants are in use: %v", used)
	}
	if node, rejected := v.Accept(announcedBy("n3", nil, "10.9.3.0/26")); len(node.Parts[0].Blocks) != 1 {
		t.Errorf("the block is rejected: %v", rejected)
	}
}

// An InternalIP that is not in a prefix of another node is an address of a machine, also if several nodes report it.
func TestInternalIPsInNoPrefixOfAnotherNodeHaveNoRoutes(t *testing.T) {
	for _, tt := range []struct{ what, address, cidr, owner string }{
		{"in its own podCIDR", "10.244.2.7", "10.244.2.0/24", "n2"},
		{"in its own block", "10.9.2.7", "10.9.2.0/26", "n2"},
		{"of two nodes", "192.0.2.3", "192.0.2.3/32", "n2"},
		{"in a block of no pool", "198.51.100.7", "198.51.100.0/26", "n2"},
	} {
		v := announcement.NewValidator(reporting(tt.address))
		want := "it has the InternalIP " + tt.address + " of node " + tt.owner
		_, rejected := v.Accept(announcedBy("n2", nil, v1.CIDR(tt.cidr)))
		if len(rejected) != 1 || rejected[0].Reason != want {
			t.Errorf("%s: rejected %v, want %q", tt.what, rejected, want)
		}
	}
	stolen := known()
	machine := stolen.Nodes["n3"]
	machine.Addresses = append(machine.Addresses, netip.MustParseAddr("198.51.100.7"))
	stolen.Nodes["n3"] = machine // n2 has an IPBlock around it, of a pool that does not exist
	v := announcement.NewValidator(stolen)
	if node, rejected := v.Accept(announcedBy("n3", []v1.IP{"198.51.100.7"})); len(node.Addresses) != 1 {
		t.Errorf("an IPBlock of no pool takes the address of a machine: %v", rejected)
	}
}

// Of two nodes with the same address the older is reached, so the age must be that of the Node: the announcement is
// written by the node.
func TestTheAgeOfANodeIsThatOfItsNode(t *testing.T) {
	created := time.Unix(1_700_000_000, 0).UTC()
	c := known()
	c.Nodes["n2"] = announcement.Node{Created: created}
	n := announcedBy("n2", nil)
	n.CreationTimestamp = metav1.NewTime(created.Add(-time.Hour))
	if node, _ := announcement.NewValidator(c).Accept(n); !node.Created.Equal(created) {
		t.Errorf("created %v, want %v", node.Created, created)
	}
}
