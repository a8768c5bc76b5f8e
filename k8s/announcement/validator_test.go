package announcement_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/announcement"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// block is a valid IPBlock of a pool, or of "network NAME".
func block(of, cidr, node string, set func(*v1.IPBlockSpec)) *v1.IPBlock {
	network := ""
	pool := of
	if name, is := strings.CutPrefix(of, "network "); is {
		network = name
		pool = ""
	}
	name := blocks.Name(network, prefix(cidr))
	b := &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)},
		Spec: v1.IPBlockSpec{
			CIDR:    v1.CIDR(cidr),
			Pool:    pool,
			Network: v1.NetworkName(network),
			Node:    v1.NodeName(node),
		},
	}
	if set != nil {
		set(&b.Spec)
	}
	return b
}

// lends makes a block offer addresses and lend those of the map.
func lends(offered []v1.IP, borrowed map[v1.IP]v1.NodeName) func(*v1.IPBlockSpec) {
	return func(s *v1.IPBlockSpec) {
		s.Offered = offered
		for a, n := range borrowed {
			s.Borrowed = append(s.Borrowed, v1.Loan{Address: a, Node: n})
		}
	}
}

// known is a cluster of this node n1, the thief n2 and a bystander n3.
func known() announcement.Cluster {
	return announcement.Cluster{
		Nodes: map[string]announcement.Node{
			"n1": {
				Ranges:    []netip.Prefix{prefix("10.244.1.0/24")},
				Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			},
			"n2": {
				Ranges:    []netip.Prefix{prefix("10.244.2.0/24"), prefix("fd00:244:2::/64")},
				Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")},
			},
			"n3": {
				Ranges:    []netip.Prefix{prefix("10.244.3.0/24")},
				Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.3"), netip.MustParseAddr("2001:db8::3")},
			},
		},
		Routed: map[string][]netip.Prefix{"blue": {prefix("10.60.0.0/16")}},
		Pools: []blocks.PoolCIDR{
			{Name: "pods", Prefix: prefix("10.9.0.0/16"), Bits: 26}, {
				Name:   "six",
				Prefix: prefix("fd00:9::/64"),
				Bits:   122,
			},
			// has the Service range and addresses of machines
			{Name: "careless", Prefix: prefix("10.96.0.0/11"), Bits: 26},
			{Network: "blue", Prefix: prefix("10.5.0.0/16"), Bits: 26},
			// the addresses of the machines, in a network of its own
			{Network: "reuse", Prefix: prefix("192.0.2.0/24"), Bits: 28},
		},
		Blocks: []*v1.IPBlock{
			block("pods", "10.9.2.0/26", "n2", nil), block("six", "fd00:9::40/122", "n2", nil),
			block("pods", "10.9.3.0/26", "n3",
				lends([]v1.IP{"10.9.3.7", "10.9.3.8", "10.9.3.9"}, map[v1.IP]v1.NodeName{
					"10.9.3.7": "n2",
					"10.9.3.8": "n1",
				})),
			block("pods", "10.9.4.0/26", "n3", lends(nil, map[v1.IP]v1.NodeName{"10.9.4.7": "n2"})),
			block("pods", "10.9.5.0/26", "", nil),
			block("network blue", "10.5.2.0/26", "n2", nil), block("network blue", "10.5.3.0/26", "n3", nil),
			block("network reuse", "192.0.2.0/28", "n2", nil),
			block("careless", "10.96.0.0/26", "n2", nil), block("careless", "10.100.0.0/26", "n2", nil),
			block("ghost", "198.51.100.0/26", "n2", nil),      // a pool that does not exist
			block("pods", "8.8.8.0/26", "n2", nil),            // not in the pool
			block("pods", "10.9.128.0/20", "n2", nil),         // larger than the pool's blocks
			block("network ghost", "10.66.0.0/26", "n2", nil), // a network that does not exist
			block("six", "fe80::40/122", "n2", nil),           // link-local
			{
				ObjectMeta: metav1.ObjectMeta{Name: "any-name"},
				Spec:       v1.IPBlockSpec{CIDR: "10.9.7.0/26", Pool: "pods", Node: "n2"},
			},
		},
		Services: []netip.Prefix{prefix("10.96.0.0/16"), prefix("fd00:96::/108")},
		Servers:  []netip.Addr{netip.MustParseAddr("10.100.0.5"), netip.MustParseAddr("203.0.113.6")},
	}
}

// announced is the NodeNetwork of n2 with prefixes of one network.
func announced(network string, cidrs ...v1.CIDR) *v1.NodeNetwork {
	return &v1.NodeNetwork{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: v1.NodeNetworkSpec{
		NodeID:          2,
		NodeIDConfirmed: true,
		Addresses:       []v1.IP{"192.0.2.2"},
		Networks:        []v1.NodePart{{Name: network, CIDRs: cidrs}},
	}}
}

// attacks lists prefixes that n2 announces, and the reasons for their rejection.
var attacks = []struct{ name, network, cidr, reason string }{
	{"the metadata service", "default", "169.254.169.254/32", "it has link-local addresses"},
	{"half of the Internet", "default", "128.0.0.0/1", "it has link-local addresses"},
	{"all addresses", "default", "0.0.0.0/0", "it has unspecified addresses"},
	{"all IPv6 addresses", "default", "::/0", "it has unspecified addresses"},
	{
		"a resolver of the Internet", "default", "8.8.8.8/32",
		"it is not in the Node's podCIDRs, and no IPBlock lends it",
	},
	{"a range of the Internet", "default", "8.8.0.0/16", "it is neither in the Node's podCIDRs nor an IPBlock"},
	{"the Service range", "default", "10.96.0.0/16", "it overlaps the Service range 10.96.0.0/16"},
	{"a Service", "default", "10.96.0.10/32", "it overlaps the Service range"},
	{"a part of the Service range in a pool", "default", "10.96.0.0/26", "it overlaps the Service range"},
	{"a part of the Service range in a pool, of no network", "", "10.96.0.0/26", "it has no network"},
	{"an IPv6 Service", "default", "fd00:96::a/128", "it overlaps the Service range"},
	{"the API server", "default", "203.0.113.6/32", "it has the API server's address"},
	{"the API server in a pool", "default", "10.100.0.0/26", "it has the API server's address 10.100.0.5"},
	{"another node", "default", "192.0.2.3/32", "it has the InternalIP 192.0.2.3 of node n3"},
	{"another node by IPv6", "default", "2001:db8::3/128", "it has the InternalIP 2001:db8::3 of node n3"},
	{"this node", "default", "192.0.2.1/32", "it has the InternalIP 192.0.2.1 of node n1"},
	{"the network of the nodes", "default", "192.0.2.0/30", "it has the InternalIP"},
	{"its own InternalIP as a pod", "default", "192.0.2.2/32", "it has the InternalIP 192.0.2.2 of node n2"},
	{"a pod of another node", "default", "10.244.3.7/32", "it is not in the Node's podCIDRs"},
	{"a pod of this node", "default", "10.244.1.7/32", "it is not in the Node's podCIDRs"},
	{"the podCIDR of another node", "default", "10.244.3.0/24", "it is neither in the Node's podCIDRs"},
	{"more than its own podCIDR", "default", "10.244.2.0/23", "it is neither in the Node's podCIDRs"},
	{"a pod in a block of another node", "default", "10.9.3.9/32", "no IPBlock lends it to the node"},
	{"an address lent to another node", "default", "10.9.3.8/32", "no IPBlock lends it to the node"},
	{"an address that was not offered", "default", "10.9.4.7/32", "no IPBlock lends it to the node"},
	{"a block of another node", "default", "10.9.3.0/26", "IPBlock 10.9.3.0-26 belongs to node n3"},
	{"a block of no node", "default", "10.9.5.0/26", "IPBlock 10.9.5.0-26 belongs to node (none)"},
	{"a part of its own block", "default", "10.9.2.0/27", "it is neither in the Node's podCIDRs"},
	{"a block of a pool that does not exist", "default", "198.51.100.0/26", "names pool ghost, which does not exist"},
	{"a block outside of its pool", "default", "8.8.8.0/26", "IPBlock 8.8.8.0-26 is not a block of pool pods"},
	{"a block larger than its pool's", "default", "10.9.128.0/20", "is not a block of pool pods"},
	{"a block with another name", "default", "10.9.7.0/26", "it is neither in the Node's podCIDRs"},
	{"a link-local block", "default", "fe80::40/122", "it has link-local addresses"},
	{
		"a block of a custom network on the default network", "default", "10.5.2.0/26",
		"it is neither in the Node's podCIDRs",
	},
	{"a podCIDR on a custom network", "blue", "10.244.2.0/24", "it is neither in the Node's podCIDRs"},
	{"a pod of another node on a custom network", "blue", "10.5.3.9/32", "no IPBlock lends it"},
	{"a block of another node on a custom network", "blue", "10.5.3.0/26", "belongs to node n3"},
	{"the metadata service on a custom network", "blue", "169.254.169.254/32", "it has link-local addresses"},
	{"a network that does not exist", "ghost", "10.66.0.0/26", "names network ghost, which does not exist"},
	{"loopback", "default", "127.0.0.1/32", "it has loopback addresses"},
	{"IPv6 loopback", "default", "::1/128", "it has loopback addresses"},
	{"multicast", "default", "224.0.0.0/4", "it has multicast addresses"},
	{"IPv6 multicast", "default", "ff02::1/128", "it has multicast addresses"},
	{"broadcast", "default", "255.255.255.255/32", "it has broadcast addresses"},
	{"unspecified", "default", "::/128", "it has unspecified addresses"},
	{"IPv4 in IPv6", "default", "::ffff:8.8.8.8/128", "it has IPv4-mapped addresses"},
	{"bits behind the length", "default", "10.244.2.7/24", "it is not a CIDR"},
	{"no prefix", "default", "all of them", "it is not a CIDR"},
}

// The network says which prefixes its pods may have behind them; any node may have such a pod.
func TestStolenTokenDivertsOnlyPrefixesThatTheNetworkRoutes(t *testing.T) {
	for _, tt := range []struct{ network, prefix, reason string }{
		{"blue", "10.60.0.0/16", ""},
		{"blue", "10.60.7.0/24", ""},
		{"blue", "10.60.0.0/15", "it is not in routedPrefixes"},
		{"blue", "10.61.0.0/24", "it is not in routedPrefixes"},
		{"blue", "0.0.0.0/0", "it is not in routedPrefixes"},
		{"blue", "10.60.7.1/24", "it is not a CIDR"},
		{"green", "10.60.7.0/24", "it is not in routedPrefixes"},
		{"default", "10.60.7.0/24", "it is not in routedPrefixes"},
	} {
		object := announced(tt.network)
		object.Spec.Networks[0].RoutedPrefixes = []v1.CIDR{v1.CIDR(tt.prefix)}
		node, rejected := announcement.NewValidator(known()).Accept(object)
		routed := node.Parts[0].Routed
		switch {
		case tt.reason == "" && (len(rejected) > 0 || fmt.Sprint(routed) != "["+tt.prefix+"]"):
			t.Errorf("%s of %s: accepted %v, rejected %v", tt.prefix, tt.network, routed, rejected)
		case tt.reason != "" && (len(routed) > 0 || len(rejected) != 1 || !strings.Contains(rejected[0].Reason, tt.reason)):
			t.Errorf("%s of %s: accepted %v, rejected %v, want %q", tt.prefix, tt.network, routed, rejected, tt.reason)
		}
	}
}

// Finding 6 of issue 12: all other nodes made routes for prefixes that were announced with a stolen token.
func TestStolenTokenDivertsNoPrefix(t *testing.T) {
	for _, tt := range attacks {
		t.Run(tt.name, func(t *testing.T) {
			validator := announcement.NewValidator(known())
			object := announced(tt.network, v1.CIDR(tt.cidr))
			object.Spec.Networks = append(object.Spec.Networks, v1.NodePart{Name: "other", CIDRs: nil})
			object.Spec.Networks[0].CIDRs = append(object.Spec.Networks[0].CIDRs, good(tt.network))
			node, rejected := validator.Accept(object)
			if want := fmt.Sprintf("[{%s [%s] []} {other [] []}]", tt.network, orNothing(good(tt.network))); fmt.Sprint(
				node.Parts) != want {
				t.Errorf("accepted %v, want %s", node.Parts, want)
			}
			if len(rejected) == 0 || rejected[0].What != tt.cidr || rejected[0].Node != "n2" ||
				!strings.Contains(rejected[0].Reason, tt.reason) {
				t.Errorf("rejected %v, want the reason %q", rejected, tt.reason)
			}
			if node.ID != 2 || fmt.Sprint(node.Addresses) != "[192.0.2.2]" {
				t.Errorf("the rest of the announcement does not count: %+v", node)
			}
		})
	}
}

// good is a prefix of n2 that is accepted whatever else n2 announces.
func good(network string) v1.CIDR {
	return map[string]v1.CIDR{"default": "10.244.2.0/24", "blue": "10.5.2.0/26", "ghost": "10.66.1.0/26"}[network]
}

func orNothing(c v1.CIDR) string {
	if strings.HasPrefix(string(c), "10.66.") {
		return "" // nothing of that network counts
	}
	return string(c)
}

func TestStolenTokenDivertsNoTunnel(t *testing.T) {
	for text, reason := range map[v1.IP]string{
		"192.0.2.3": "it is not an InternalIP of the Node", "192.0.2.1": "it is not an InternalIP of the Node",
		"203.0.113.6": "it is not an InternalIP",
		"127.0.0.1":   "it is loopback", "169.254.169.254": "it is link-local", "224.0.0.1": "it is multicast",
		"0.0.0.0": "it is unspecified",
		"fe80::1": "it is link-local", "::ffff:192.0.2.2": "it is IPv4-mapped", "here": "it is not an IP address",
	} {
		object := announced("default")
		object.Spec.Addresses = []v1.IP{text, "2001:db8::2"}
		node, rejected := announcement.NewValidator(known()).Accept(object)
		if fmt.Sprint(node.Addresses) != "[2001:db8::2]" {
			t.Errorf("of %s and 2001:db8::2 tunnels lead to %v", text, node.Addresses)
		}
		if len(rejected) != 1 ||
			!strings.HasPrefix(rejected[0].String(), "node n2: address "+string(text)+": "+reason) {
			t.Errorf("%s: rejected %v, want %q", text, rejected, reason)
		}
	}
}

func TestGrantedPrefixesAreAccepted(t *testing.T) {
	for _, tt := range []struct {
		name, network string
		cidr          v1.CIDR
	}{
		{"its podCIDR", "default", "10.244.2.0/24"},
		{"its IPv6 podCIDR", "default", "fd00:244:2::/64"},
		{"a part of its podCIDR", "default", "10.244.2.128/25"},
		{"an address of its podCIDR", "default", "10.244.2.9/32"},
		{"its block", "default", "10.9.2.0/26"},
		{"its IPv6 block", "default", "fd00:9::40/122"},
		{"an address that it borrows", "default", "10.9.3.7/32"},
		{"its block of a custom network", "blue", "10.5.2.0/26"},
		{"addresses of machines in a custom network", "reuse", "192.0.2.0/28"},
	} {
		node, rejected := announcement.NewValidator(known()).Accept(announced(tt.network, tt.cidr))
		if len(rejected) > 0 || len(node.Parts) != 1 || len(node.Parts[0].Blocks) != 1 ||
			node.Parts[0].Blocks[0] != prefix(string(tt.cidr)) {
			t.Errorf("%s: accepted %+v, rejected %v", tt.name, node.Parts, rejected)
		}
	}
}

func TestAnnouncementWithoutNodeIsRejected(t *testing.T) {
	object := announced("default", "10.9.2.0/26")
	object.Name = "n9"
	node, rejected := announcement.NewValidator(known()).Accept(object)
	if node.ID != 0 || len(node.Addresses)+len(node.Parts) > 0 ||
		fmt.Sprint(rejected) != "[node n9: there is no Node of this name]" {
		t.Errorf("accepted %+v, rejected %v", node, rejected)
	}
}

func TestUnconfirmedNodeIDIsNotUsed(t *testing.T) {
	object := announced("default")
	object.Spec.NodeIDConfirmed = false
	if node, _ := announcement.NewValidator(known()).Accept(object); node.ID != 0 {
		t.Errorf("the ID is %d", node.ID)
	}
}

// accepts reports whether n2 may announce a prefix of the default network.
func accepts(c announcement.Cluster, cidr v1.CIDR) (bool, announcement.Former) {
	v := announcement.NewValidator(c)
	node, _ := v.Accept(announced(pod.DefaultNetwork, cidr))
	return len(node.Parts[0].Blocks) == 1, v.Used()
}

func TestBlocksOfADeletedPoolServeUntilTheyGo(t *testing.T) {
	c := known()
	c.Former = announcement.Former{}.Learn(c)
	c.Pools = c.Pools[1:] // without pods
	c.Former = c.Former.Learn(c)
	isAccepted, used := accepts(c, "10.9.2.0/26")
	if !isAccepted || len(used.Blocks) != 1 {
		t.Fatalf("accepted %t, remembered %v", isAccepted, used)
	}
	if loan, _ := accepts(c, "10.9.3.7/32"); !loan {
		t.Error("an address borrowed from such a block is rejected")
	}
	for _, cidr := range []v1.CIDR{"198.51.100.0/26", "8.8.8.0/26", "10.9.128.0/20"} {
		if evil, _ := accepts(c, cidr); evil {
			t.Errorf("%s was never a block of a pool, and is accepted", cidr)
		}
	}
	c.Former = used // another run of the agent knows no more than that
	if again, _ := accepts(c, "10.9.2.0/26"); !again {
		t.Error("after a restart the block is rejected")
	}
	later := c
	later.Blocks = append([]*v1.IPBlock{block("pods", "10.9.6.0/26", "n2", nil)}, c.Blocks...)
	later.Former = c.Former.Learn(later)
	if claimed, _ := accepts(later, "10.9.6.0/26"); claimed {
		t.Error("a block that was claimed after the pool was deleted is accepted")
	}
	later.Blocks[1] = block("pods", "10.9.2.0/26", "n2", nil)
	later.Blocks[1].UID = "another"
	later.Former = c.Former.Learn(later)
	if accepted, _ := accepts(later, "10.9.2.0/26"); accepted {
		t.Error("a recreated block is accepted")
	}
	c.Pools = append(c.Pools, blocks.PoolCIDR{Name: "new", Prefix: prefix("10.9.0.0/16"), Bits: 28})
	if overlapping, _ := accepts(c, "10.9.2.0/26"); overlapping {
		t.Error("a block of a pool that is gone is accepted in the range of another one")
	}
}

func TestFormerPodCIDRsAreAcceptedUntilAnotherNodeHasThem(t *testing.T) {
	c := known()
	c.Former = announcement.Former{}.Learn(c)
	delete(c.Nodes, "n2")
	c.Former = c.Former.Learn(c) // in between there is no such Node
	c.Nodes["n2"] = announcement.Node{
		Ranges:    []netip.Prefix{prefix("10.244.7.0/24")},
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
	}
	c.Former = c.Former.Learn(c)
	isAccepted, used := accepts(c, "10.244.2.9/32")
	if !isAccepted || fmt.Sprint(used.Ranges) != "map[n2:[10.244.2.0/24]]" {
		t.Errorf("accepted %t, remembered %v", isAccepted, used.Ranges)
	}
	for _, cidr := range []v1.CIDR{"10.244.2.0/24", "10.244.3.9/32", "10.244.9.9/32"} {
		if evil, _ := accepts(c, cidr); evil {
			t.Errorf("%s is accepted", cidr)
		}
	}
	c.Nodes["n4"] = announcement.Node{Ranges: []netip.Prefix{prefix("10.244.2.0/24")}}
	for _, former := range []announcement.Former{c.Former, c.Former.Learn(c)} {
		c.Former = former
		if anothers, _ := accepts(c, "10.244.2.9/32"); anothers {
			t.Error("an address in the podCIDR of another node is accepted")
		}
	}
	delete(c.Nodes, "n4")
	c.Former = c.Former.Learn(c)
	if back, _ := accepts(c, "10.244.2.9/32"); back {
		t.Error("a range that was another node's in between is remembered")
	}
}

func TestClientRangesAreTakenOver(t *testing.T) {
	n := announced("default", "10.244.2.0/24")
	n.Spec.ServiceClientRanges = []v1.CIDR{"100.64.0.0/10", "fc00::1/8", "many"}
	accepted, rejected := announcement.NewValidator(known()).Accept(n)
	if got := fmt.Sprint(accepted.ClientRanges); got != "[100.64.0.0/10]" || len(rejected) != 2 {
		t.Errorf("ranges %s, rejected %v", got, rejected)
	}
}
