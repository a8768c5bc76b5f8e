package agent

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// uplinkMTU is the MTU of the node's uplink in a lab, in bytes.
const uplinkMTU = 1400

// uplinkOf adds the address of a lab's node to a new link.
func uplinkOf(t *testing.T) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up0", MTU: uplinkMTU}, PeerName: "up1"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 200, 0, 11), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(link, address); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
}

// neighbour makes another node announce itself with a block that is its podCIDR.
func neighbour(server *k8stest.Server, name string, id int32, block v1.CIDR) {
	server.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{string(block)}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.200.1.%d", id%250+1)},
			},
		},
	})
	putAnnouncement(server, name, id, block)
}

// putAnnouncement makes another node announce prefixes, regardless of its Node object.
func putAnnouncement(server *k8stest.Server, name string, id int32, prefixes ...v1.CIDR) {
	server.Put("nodenetworks.contivpp.io", &v1.NodeNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.NodeNetworkSpec{
			NodeID: id, NodeIDConfirmed: true, Addresses: []v1.IP{v1.IP(fmt.Sprintf("10.200.1.%d", id%250+1))},
			Networks: []v1.NodePart{{Name: "default", CIDRs: prefixes}},
		},
	})
}

// askedForOwn counts the requests to the API server for the NodeNetwork of the lab's node.
func askedForOwn(server *k8stest.Server) (n int) {
	for _, r := range server.Requests() {
		if strings.HasPrefix(r, "GET ") && strings.Contains(r, "/nodenetworks/"+node.Name) {
			n++
		}
	}
	return n
}

// hasRoute reports whether the node's kernel has a specific route for an address to the dataplane.
func hasRoute(t *testing.T, to string) bool {
	t.Helper()
	prefix := netip.MustParsePrefix(to)
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Dst != nil && r.Dst.String() == prefix.String()
	})
}

func TestOtherNodesAreReachableWhileTheyExist(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{})
	var own v1.NodeNetwork
	l.eventually("the node announces itself", func() bool {
		return server.Object("nodenetworks.contivpp.io", "", node.Name, &own) && own.Spec.NodeIDConfirmed &&
			len(own.Status.Networks) == 1
	})
	spec := own.Spec
	if !slices.Equal(spec.Addresses, []v1.IP{"10.200.0.11"}) || spec.Tunnel.Type != v1.TunnelVXLAN ||
		spec.Tunnel.MTU != uplinkMTU ||
		len(spec.Networks) != 2 || !slices.Equal(spec.Networks[0].CIDRs, []v1.CIDR{"10.8.0.0/24", "fd00:8::/64"}) ||
		own.OwnerReferences[0].UID != "node-uid" {
		t.Errorf("announced: %+v, owners %+v", spec, own.OwnerReferences)
	}

	neighbour(server, "n2", spec.NodeID%60000+1, "10.8.2.0/24")
	neighbour(server, "n3", spec.NodeID%60000+2, "10.8.3.0/24")
	l.eventually("routes to both nodes exist", func() bool {
		return hasRoute(t, "10.8.2.0/24") && hasRoute(t, "10.8.3.0/24")
	})
	a := l.pod("a")
	l.put(server, a, nil)
	result := l.cni("ADD", a, nil)
	asked := askedForOwn(server)
	for i := range 20 { // changes of other nodes
		l.put(server, a, map[string]string{"other": strconv.Itoa(i)})
	}
	neighbour(server, "n4", spec.NodeID%60000+3, "10.8.4.0/24")
	l.eventually("a route to the third node exists", func() bool { return hasRoute(t, "10.8.4.0/24") })
	if n := askedForOwn(server); n != asked {
		t.Errorf("changes of other nodes caused %d requests for this node's NodeNetwork", n-asked)
	}
	l.eventually("the event is durable", func() bool { // the kernel has the route earlier
		events, err := l.Weftctl(t.Context(), "events")
		return err == nil && strings.Contains(events, "set 3 other nodes")
	})

	server.Disconnect()
	l.restartAfter(func(string) error { return nil })
	if operations := l.resyncs(); len(operations) > 0 || !hasRoute(t, "10.8.2.0/24") {
		t.Errorf("operations of the new agent's resync without its API server: %v", operations)
	}
	server.Reconnect()
	server.Remove("nodenetworks.contivpp.io", "", "n2")
	l.eventually("no route to the node that left exists", func() bool { return !hasRoute(t, "10.8.2.0/24") })
	if !hasRoute(t, "10.8.3.0/24") {
		t.Error("the route to the other node is gone too")
	}
	l.check(a, result)
	l.cni("DEL", a, nil)
}

// Finding 6 of issue 12: announcements with a stolen token of another node's agent get no route, neither at a running
// node nor at one that starts.
func TestStolenAgentTokenGetsNoRoute(t *testing.T) {
	server := k8stest.New(t)
	server.Put("servicecidrs.networking.k8s.io", &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
	})
	l := clusterLabWith(t, server, node.Options{})
	neighbour(server, "n2", 60001, "10.8.2.0/24")
	neighbour(server, "n3", 60002, "10.8.3.0/24")
	l.eventually("routes to both nodes exist", func() bool {
		return hasRoute(t, "10.8.2.0/24") && hasRoute(t, "10.8.3.0/24")
	})

	server.Put("ipblocks.contivpp.io", &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "198.51.100.0-26"},
		Spec:       v1.IPBlockSpec{CIDR: "198.51.100.0/26", Pool: "ghost", Node: "n2"},
	})
	evil := []v1.CIDR{
		"169.254.169.254/32", "10.96.0.0/16", "10.96.0.10/32", "128.0.0.0/1", "8.8.8.8/32", "10.200.1.3/32",
		"10.200.0.11/32", "10.8.3.7/32", "10.8.0.7/32", "198.51.100.0/26",
	}
	shown := func() bool {
		status, err := l.Weftctl(t.Context(), "status")
		return err == nil &&
			strings.Contains(status, "node n2: 169.254.169.254/32 of network default: it has link-local addresses") &&
			strings.Contains(status, fmt.Sprintf("and %d more", len(evil)-2))
	}
	for i, granted := range []v1.CIDR{"10.8.2.0/25", "10.8.2.128/25"} {
		when := fmt.Sprintf("run %d of the agent", i+1)
		putAnnouncement(server, "n2", 60001, append([]v1.CIDR{granted}, evil...)...)
		l.eventually("the rest of the announcement is accepted", func() bool {
			return hasRoute(t, string(granted)) && hasRoute(t, "10.8.3.0/24")
		})
		for _, prefix := range evil {
			if links := wayTo(t, string(prefix)); len(links) > 0 || hasRoute(t, string(prefix)) {
				t.Errorf("%s: %s has a route through %v", when, prefix, links)
			}
		}
		objects, err := l.Weftctl(t.Context(), "objects", "-o", "json")
		for _, prefix := range evil {
			isNode := strings.HasPrefix(string(prefix), "10.200.") // endpoints of tunnels, in a VRF of their own
			if err != nil || !isNode && strings.Contains(objects, string(prefix)) {
				t.Errorf("%s: an applied object has %s (error %v)", when, prefix, err)
			}
		}
		l.eventually("weftctl status shows it", shown)
		l.restartAfter(func(string) error { return nil })
	}

	// Prefixes that the cluster grants later are accepted without a new announcement.
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "ghost"},
		Spec:       v1.IPPoolSpec{CIDR: "198.51.100.0/24"},
	})
	l.eventually("the block is accepted when its pool exists", func() bool { return hasRoute(t, "198.51.100.0/26") })
	putAnnouncement(server, "n2", 60001, "10.8.2.0/24")
	l.eventually("nothing is rejected", func() bool {
		status, err := l.Weftctl(t.Context(), "status")
		return err == nil && !strings.Contains(status, "of network default")
	})
}

// announced returns the blocks of the default network in the node's announcement.
func announced(server *k8stest.Server) []v1.CIDR {
	var own v1.NodeNetwork
	if server.Object("nodenetworks.contivpp.io", "", node.Name, &own) && len(own.Spec.Networks) > 0 {
		return own.Spec.Networks[0].CIDRs
	}
	return nil
}

func TestPodsHaveAddressesOfBlocksOfTheClustersPools(t *testing.T) {
	server := k8stest.New(t)
	size := int32(30)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/24", BlockSize: &size},
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	held := func() []v1.CIDR { return announced(server) }
	l.eventually("blocks are claimed in advance, and announced", func() bool { return len(held()) >= 4 })
	a := l.pod("a")
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "b1/tap/blue"})
	result := l.cni("ADD", a, nil)
	addresses := l.addresses(result)
	if len(addresses) != 2 ||
		!slices.ContainsFunc(held(), func(c v1.CIDR) bool {
			return netip.MustParsePrefix(string(c)).Contains(addresses[0])
		}) {
		t.Fatalf("ADD returned %v, blocks are %v", addresses, held())
	}
	allocations := func() (list []v1.Allocation) {
		for _, c := range held() {
			var b v1.IPBlock
			server.Object("ipblocks.contivpp.io", "", strings.ReplaceAll(string(c), "/", "-"), &b)
			list = append(list, b.Status.Allocations...)
		}
		return slices.DeleteFunc(list, func(a v1.Allocation) bool { return a.Attachment == "node" }) // its own address
	}
	want := v1.Allocation{
		Address:    v1.IP(addresses[0].String()),
		Namespace:  "lab",
		Pod:        "a",
		Attachment: "weft/" + a.ContainerID + "/eth0",
	}
	l.eventually("the block's status has the owner of the address", func() bool {
		return slices.Equal(allocations(), []v1.Allocation{want})
	})
	var extra v1.IPBlock
	l.eventually("so has the status of the custom network's block", func() bool {
		return server.Object("ipblocks.contivpp.io", "", "blue.10.5.0.0-26", &extra) &&
			len(extra.Status.Allocations) == 1
	})
	if got := extra.Status.Allocations[0]; got.Pod != "a" || got.Attachment != want.Attachment+"/b1" {
		t.Errorf("allocations of the custom network: %+v", got)
	}

	server.Disconnect() // without its API server the node still gives out what it has, before and after a restart
	b := l.pod("b")
	l.cni("ADD", b, map[string]any{
		"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{}},
	})
	l.restartAfter(func(string) error { return nil })
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the new agent's resync without its API server: %v", operations)
	}
	l.check(a, result)
	l.cni("DEL", b, nil)
	l.cni("DEL", a, nil)
	server.Reconnect()
	l.eventually("the announcement lists no address", func() bool { return len(allocations()) == 0 })

	if err := l.ClusterPools(false); err != nil { // the node's own ranges; its blocks are unused
		t.Fatal(err)
	}
	l.restartAfter(func(string) error { return nil })
	c := l.pod("c")
	l.put(server, c, nil)
	if addresses := l.addresses(l.cni("ADD", c, nil)); !netip.MustParsePrefix("10.8.0.0/24").Contains(addresses[0]) {
		t.Errorf("with podCIDRs ADD returned %v", addresses)
	}
	l.cni("DEL", c, nil)
}

func TestNodeServesPodsOnceItHasAddresses(t *testing.T) {
	server := k8stest.New(t)
	pool := &v1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: v1.IPPoolSpec{CIDR: "10.9.0.0/24"}}
	server.Put("ippools.contivpp.io", pool)
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	if err := l.KillAgent(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(l.stateFile()); err != nil {
		t.Fatal(err)
	}
	server.Remove("ippools.contivpp.io", "", "pods")
	server.Remove("ipblocks.contivpp.io", "", "10.9.0.0-26")
	started := make(chan error, 1)
	go func() { started <- l.StartAgent(t.Context()) }()
	a := l.pod("a")
	l.put(server, a, nil)
	l.eventually("STATUS and ADD name the missing block", func() bool {
		status, _ := l.tries("STATUS", a)
		add, failed := l.tries("ADD", a)
		return failed && strings.Contains(status, `"code": 50`) && strings.Contains(add, `"code": 11`) &&
			strings.Contains(status, "no block of the cluster's pools") &&
			strings.Contains(add, "no block of the cluster's pools")
	})
	// An administrator may give the node one block of a pool from which the node cannot claim.
	pool.Spec.Disabled = true
	server.Put("ippools.contivpp.io", pool)
	server.Put("ipblocks.contivpp.io", &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{
			Name: "10.9.0.64-26",
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: "node-uid"},
			},
		},
		Spec: v1.IPBlockSpec{CIDR: "10.9.0.64/26", Pool: "pods", Node: node.Name},
	})
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	pool.Spec.Disabled = false
	server.Put("ippools.contivpp.io", pool)
	var addresses []netip.Addr
	l.eventually("a pod has one of its addresses", func() bool {
		output, failed := l.tries("ADD", a)
		if !failed {
			addresses = l.addresses([]byte(output))
		}
		return !failed
	})
	if len(addresses) != 1 || !netip.MustParsePrefix("10.9.0.64/26").Contains(addresses[0]) {
		t.Errorf("ADD returned %v", addresses)
	}
	l.cni("DEL", a, nil)
}

// wayTo returns the links of the node's kernel routes for a range.
func wayTo(t *testing.T, to string) (links []string) {
	t.Helper()
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if link, err := netlink.LinkByIndex(r.LinkIndex); err == nil && r.Dst != nil && r.Dst.String() == to {
			links = append(links, link.Attrs().Name)
		}
	}
	return links
}

func TestNodesReachEachOtherByTheConfiguredTunnel(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{Tunnel: "none"})
	neighbour(server, "n2", 60001, "10.8.2.0/24")
	for _, step := range []struct{ tunnel, link string }{{"none", "up0"}, {"vxlan4", node.HostLink}, {"none", "up0"}} {
		if err := l.Tunnel(step.tunnel); err != nil {
			t.Fatal(err)
		}
		l.restartAfter(func(string) error { return nil })
		l.eventually("the route uses "+step.link, func() bool {
			return slices.Equal(wayTo(t, "10.8.2.0/24"), []string{step.link})
		})
	}
}
