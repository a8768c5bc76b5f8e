package agent

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// nodeHas adds a single address to the link up0 of the node, as keepalived does, and returns a function that deletes
// it.
func nodeHas(t *testing.T, address string) (deleted func()) {
	t.Helper()
	link, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	single := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(link, single); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := netlink.AddrDel(link, single); err != nil {
			t.Fatal(err)
		}
	}
}

// shows reports whether the output of weftctl has a line with all words.
func (l *lab) shows(command string, words ...string) bool {
	l.Helper()
	output, err := l.Weftctl(l.Context(), command)
	if err != nil {
		l.Fatal(err)
	}
	return slices.ContainsFunc(strings.Split(output, "\n"), func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}

// smallLab is a node without a cluster whose pool has 13 addresses for pods.
func smallLab(t *testing.T) *lab {
	t.Helper()
	netnstest.RequireTap(t)
	uplinkOf(t)
	return newLabWith(t, programs.Build(t), node.Options{
		Pools: []node.Pool{{Name: "small", Prefix: netip.MustParsePrefix("10.1.0.0/28")}},
	})
}

func TestAddressesOfTheNodeAreGivenToNoPod(t *testing.T) {
	netnstest.RequireTap(t)
	uplinkOf(t)
	nodeHas(t, "10.1.0.3")
	l := newLabWith(t, programs.Build(t), node.Options{
		Pools: []node.Pool{{Name: "small", Prefix: netip.MustParsePrefix("10.1.0.0/29")}},
	})
	deleted := nodeHas(t, "10.1.0.5")
	l.await(func() bool { return l.shows("addresses", "10.1.0.5", "occupied", "link up0 of this node") },
		"the later address")
	if !l.shows("addresses", "10.1.0.3", "occupied", "link up0 of this node") ||
		l.shows("addresses", "10.1.0.1", "occupied") {
		t.Error("addresses of the node at the start are not shown")
	}
	fixed := l.pod("fixed")
	more := map[string]any{"runtimeConfig": map[string]any{"ips": []string{"10.1.0.5"}}}
	if output, failed := l.triesWith("ADD", fixed, more); !failed || !strings.Contains(output, `"code": 101`) ||
		!strings.Contains(output,
			"address 10.1.0.5 belongs to link up0 of this node; request another one or none, or remove it there") {
		t.Errorf("error of a pod that requests the node's address: %s", output)
	}
	pods := []*node.Pod{l.pod("a"), l.pod("b"), l.pod("c")}
	var got []string
	for _, p := range pods {
		got = append(got, l.addresses(l.cni("ADD", p, nil))[0].String())
		defer l.cni("DEL", p, nil)
	}
	if want := []string{"10.1.0.2", "10.1.0.4", "10.1.0.6"}; !slices.Equal(got, want) {
		t.Errorf("pods got %v, want %v", got, want)
	}
	if code, msg := refusalOf(t, l.fails(fixed)); code != 100 ||
		!strings.Contains(msg,
			"all addresses of pool small are held (2 are skipped: nodes have them, or IPAMClaims hold them), 3 by this node") {
		t.Errorf("a pod more is refused with %d: %s", code, msg)
	}
	deleted()
	l.await(func() bool { return !l.shows("addresses", "10.1.0.5", "occupied") }, "the address to be free")
	if got := l.addresses(l.cni("ADD", fixed, more))[0].String(); got != "10.1.0.5" {
		t.Errorf("the pod got %s, and the node does not have its address any more", got)
	}
	l.cni("DEL", fixed, nil)
}

// The address comes, goes, comes while the agent is down, and stays during kill -9.
func TestPodWithAnAddressOfTheNodeIsReported(t *testing.T) {
	l := smallLab(t)
	p := l.pod("a")
	result := l.cni("ADD", p, nil)
	address := l.addresses(result)[0].String()
	conflict := []string{
		"node-addresses", "not", "ok",
		"pod lab/a: address " + address + " of interface eth0 is also on link up0 of the node",
	}
	settled := []string{"node-addresses", "ok"}
	if !l.shows("status", settled...) {
		t.Error("a conflict is shown before there is one")
	}
	deleted := nodeHas(t, address)
	l.await(func() bool { return l.shows("status", conflict...) }, "the conflict")
	deleted()
	l.await(func() bool { return l.shows("status", settled...) }, "the end of the conflict")

	l.restartAfter(func(string) error {
		deleted = nodeHas(t, address)
		return nil
	})
	l.await(func() bool { return l.shows("status", conflict...) }, "the conflict that began while the agent was down")
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the new agent's resync: %v", operations)
	}
	l.check(p, result)
	if err := l.KillAgent(); err != nil {
		t.Fatal(err)
	}
	l.start()
	l.await(func() bool { return l.shows("status", conflict...) }, "the conflict after kill -9")

	l.cni("DEL", p, nil)
	l.await(func() bool { return l.shows("status", settled...) }, "the end of the conflict with the pod")
	for _, name := range []string{"b", "c"} {
		other := l.pod(name)
		if got := l.addresses(l.cni("ADD", other, nil))[0].String(); got == address {
			t.Errorf("pod %s got %s of the node", name, got)
		}
		defer l.cni("DEL", other, nil)
	}
	deleted()
	l.await(func() bool { return !l.shows("addresses", address) }, "the address to be free")
}

// The network has a VRF or bridge of its own without a route to the node, so the same address is no conflict.
func TestPodOnACustomNetworkMayHaveAnAddressOfTheNode(t *testing.T) {
	netnstest.RequireTap(t)
	uplinkOf(t)
	nodeHas(t, "10.5.0.2")
	blue := node.Network{Name: "blue", Type: "L3", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")}}
	l := newLabWith(t, programs.Build(t), node.Options{Networks: []node.Network{blue}})
	p := l.pod("a")
	annotations := map[string]any{
		"runtimeConfig": map[string]any{
			"io.kubernetes.cri.pod-annotations": map[string]string{customInterfaces: "b1/tap/blue"},
		},
	}
	got := l.addresses(l.cni("ADD", p, annotations))
	defer l.cni("DEL", p, nil)
	if got[len(got)-1].String() != "10.5.0.2" {
		t.Errorf("the pod got %v", got)
	}
	if !l.shows("status", "node-addresses", "ok") {
		t.Error("a conflict is shown")
	}
}

func TestNodeOfAClusterReportsAPodWithItsAddress(t *testing.T) {
	server := k8stest.New(t)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/26"},
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	nodeHas(t, "10.9.0.60")
	l.await(func() bool { return l.shows("addresses", "10.9.0.60", "occupied") },
		"the address of the node in the block")
	a := l.pod("a")
	l.put(server, a, nil)
	address := l.addresses(l.cni("ADD", a, nil))[0].String()
	var b v1.IPBlock
	l.eventually("the block's status lists the pod and the node", func() bool {
		return server.Object("ipblocks.contivpp.io", "", "10.9.0.0-26", &b) && len(b.Status.Allocations) == 2
	})
	for _, allocation := range b.Status.Allocations {
		if allocation.Address == "10.9.0.60" {
			t.Error("an address that no pod has is published as a pod's")
		}
	}
	nodeHas(t, address)
	l.eventually("the pod has an Event", func() bool {
		return slices.ContainsFunc(eventsOf(t, server), func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "a" && e.Reason == "WeftAddressOfNode" &&
				strings.Contains(e.Message, "address "+address+" of interface eth0 is also on link up0 of the node")
		})
	})
	l.cni("DEL", a, nil)
}
