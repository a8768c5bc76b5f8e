package policies_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/policies"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// defaultBlocks are the blocks of nodes on the default network.
func defaultBlocks(of map[string][]string) policies.Networks {
	n := policies.Networks{Blocks: make(map[string][]pod.NodePart)}
	for node, blocks := range of {
		part := pod.NodePart{Network: policy.DefaultNetwork}
		for _, b := range blocks {
			part.Blocks = append(part.Blocks, netip.MustParsePrefix(b))
		}
		n.Blocks[node] = []pod.NodePart{part}
	}
	return n
}

// threeNodes have a block each. n3 lends an address to n2.
func threeNodes() policies.Networks {
	return defaultBlocks(map[string][]string{
		"n1": {"10.1.0.0/24"},
		"n2": {"10.1.1.0/24", "10.1.2.9/32", "fd00:1::/64"},
		"n3": {"10.1.2.0/24", "fd00:2::/64"},
	})
}

// node puts a Node with an InternalIP and further addresses.
func (l *lab) node(name, ip string, further ...string) {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
	for _, a := range further {
		o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a})
	}
	l.Put("nodes", o)
}

// An administrator denies pods the nodes. The kubelet of a node that an attacker has taken over reports the address of
// a pod of another node, such as the cluster's resolver.
func TestAddressOfAPodThatAKubeletReportsIsNoAddressOfItsNode(t *testing.T) {
	l := newLab(t, nil)
	l.SetNetworks(threeNodes())
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("dns", "n3", "10.1.2.53", nil)
	l.node("n2", "192.0.2.2", "10.1.2.53", "fd00:2::53", "10.1.2.9", "10.1.1.7", "10.77.0.1")
	l.putAdmin("AdminNetworkPolicy", "no-nodes",
		`{"priority": 1, "subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"nodes": {}}]}]}`, "{}")
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	to := func(remote string) func() bool {
		return func() bool { return l.permits("db", "eth0", policy.Egress, remote, 53) }
	}
	for remote, isPermitted := range map[string]bool{
		"192.0.2.2": false, "10.77.0.1": false, // in no block
		"10.1.2.53": true, "fd00:2::53": true,
		"10.1.2.9": false, "10.1.1.7": false, // of pods of that node: it harms itself
	} {
		if to(remote)() != isPermitted {
			t.Errorf("%s is permitted: %t", remote, !isPermitted)
		}
	}
	l.SetNetworks(defaultBlocks(map[string][]string{"n1": {"10.1.0.0/24"}}))
	l.eventually("without a block it may be any machine", not(to("10.1.2.53")))
	l.SetNetworks(threeNodes())
	l.eventually("with the block it is a pod again", to("10.1.2.53"))
	l.node("n2", "192.0.2.2", "10.1.2.54")
	l.eventually("an address that the Node does not have any more is not denied", to("10.77.0.1"))
	if !to("10.1.2.54")() {
		t.Error("a new address of a pod is that of a node")
	}
}

// The port of the agents is protected on nodes, not on pods that a kubelet names.
func TestAddressOfAPodThatAKubeletReportsIsNotProtected(t *testing.T) {
	l := newLab(t, func(c *policies.Config) { c.Protected = policies.Protected{Ports: []uint16{9465}} })
	l.SetNetworks(threeNodes())
	l.pod("db", "n1", "10.1.0.5", nil)
	l.node("n2", "192.0.2.2", "10.1.2.53")
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	if l.permits("db", "eth0", policy.Egress, "192.0.2.2", 9465) ||
		!l.permits("db", "eth0", policy.Egress, "10.1.2.53", 9465) {
		t.Error("the address of the node is permitted, or that of the pod is denied")
	}
}

// The kubelet of a node that an attacker has taken over reports the address of a pod of another node as that of a pod
// of its own.
func TestAddressesThatAKubeletReportsCountUnlessAnotherNodeHasThem(t *testing.T) {
	for _, tt := range []struct {
		what, node, address string
		want                bool
	}{
		{"in the block of its node", "n2", "10.1.1.5", true},
		{"in the IPv6 block of its node", "n2", "fd00:1::5", true},
		{"in the block of another node", "n2", "10.1.2.66", false},
		{"in the IPv6 block of another node", "n2", "fd00:2::66", false},
		{"in the block of this node", "n2", "10.1.0.66", false},
		{"that its node borrows", "n2", "10.1.2.9", true},
		{"in its block, lent to another node", "n3", "10.1.2.9", false},
		{"in no block: of another CNI plugin, or not announced yet", "n2", "10.77.0.5", true},
		{"in no block, of a node that has announced nothing", "n9", "10.77.0.5", true},
		{"in a block of another node, of a node that has announced nothing", "n9", "10.1.2.66", false},
		{"of this node in a block of another one: its kubelet is believed", "n1", "10.1.2.66", true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			l := newLab(t, nil)
			l.SetNetworks(threeNodes())
			l.policy("p", onlyFrom("db", "web"))
			l.pod("db", "n1", "10.1.0.5", nil)
			l.pod("web", tt.node, "10.77.0.77", func(o *corev1.Pod) {
				o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: tt.address})
			})
			l.run()
			l.admit(attachment("db", "eth0 default 10.1.0.5"))
			if got := l.permits("db", "eth0", policy.Ingress, tt.address, 80); got != tt.want {
				t.Errorf("%s is permitted: %t", tt.address, got)
			}
			if !l.permits("db", "eth0", policy.Ingress, "10.77.0.77", 80) {
				t.Error("the pod lost its other address")
			}
		})
	}
}

// Watches have no common order: blocks may become known, move, or be lent after the pod is known.
func TestAddressesThatAKubeletReportsFollowTheBlocksOfNodes(t *testing.T) {
	l := newLab(t, nil)
	l.policy("p", onlyFrom("db", "web"))
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n2", "10.1.2.66", nil)
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5"))
	from := l.from("db", "eth0", "10.1.2.66")
	if !from() {
		t.Error("denied although no block is known")
	}
	for _, step := range []struct {
		what   string
		blocks map[string][]string
		want   bool
	}{
		{"another node has the block", map[string][]string{"n3": {"10.1.2.0/24"}}, false},
		{"the block is lost", nil, true},
		{"another node has it again", map[string][]string{"n3": {"10.1.2.0/24"}, "n2": {"10.1.1.0/24"}}, false},
		{
			"the address is lent", map[string][]string{"n3": {"10.1.2.0/24"}, "n2": {"10.1.1.0/24", "10.1.2.66/32"}},
			true,
		},
		{"it is returned", map[string][]string{"n3": {"10.1.2.0/24"}, "n2": {"10.1.1.0/24"}}, false},
		{"the block moves to the node of the pod", map[string][]string{"n2": {"10.1.1.0/24", "10.1.2.0/24"}}, true},
	} {
		l.SetNetworks(defaultBlocks(step.blocks))
		if step.want {
			l.eventually(step.what, from)
		} else {
			l.eventually(step.what, not(from))
		}
	}
}

// A further interface of a pod has its addresses from the annotation, which counts by rules of its own. A kubelet that
// reports such an address as that of a main interface does not take it from the pod that has it.
func TestAKubeletDoesNotTakeAnAnnouncedAddressFromAPodOfAnotherNode(t *testing.T) {
	l := newLab(t, nil)
	n := threeNodes()
	n.CIDRs = map[string]bool{}
	l.SetNetworks(n)
	l.peersOn(policy.DefaultNetwork, "web")
	l.pod("db", "n1", "10.1.0.5", nil)
	l.pod("web", "n3", "10.1.2.5", says(said{"default", "net1", []string{"10.1.2.77"}}))
	l.pod("forger", "n2", "10.1.1.6", func(o *corev1.Pod) {
		o.Status.PodIPs = append(o.Status.PodIPs, corev1.PodIP{IP: "10.1.2.77"})
	})
	l.run()
	l.admit(attachment("db", "eth0 default 10.1.0.5", "r1 default 10.1.0.9"))
	if !l.from("db", "r1", "10.1.2.77")() {
		t.Error("denied because a kubelet of another node reports the address")
	}
}
