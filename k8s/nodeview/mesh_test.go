package nodeview_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/k8s/announcement"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
)

const serviceRanges = "servicecidrs.networking.k8s.io"

// grants gives a Node its InternalIPs and podCIDRs.
func grants(addresses []string, ranges ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.PodCIDRs = ranges
		n.Status.Addresses = nil
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
	}
}

// announces makes n2 announce prefixes of the default network.
func (l *lab) announces(prefixes ...v1.CIDR) {
	l.Put(nodeNets, &v1.NodeNetwork{ObjectMeta: named("n2"), Spec: v1.NodeNetworkSpec{
		NodeID:          2,
		NodeIDConfirmed: true,
		Addresses:       []v1.IP{"10.200.0.12"},
		Networks:        []v1.NodePart{{Name: "default", CIDRs: prefixes}},
	}})
}

func (l *lab) block(cidr v1.CIDR, pool string, node v1.NodeName) {
	name := strings.ReplaceAll(string(cidr), "/", "-")
	l.Put(ipblocks, &v1.IPBlock{ObjectMeta: named(name), Spec: v1.IPBlockSpec{CIDR: cidr, Pool: pool, Node: node}})
}

// reached lists the accepted prefixes of other nodes.
func reached(c *nodeview.Cluster) string {
	var list []string
	for _, n := range c.Mesh().Nodes {
		for _, p := range n.Parts {
			list = append(list, fmt.Sprint(n.Name, p.Blocks))
		}
	}
	return strings.Join(list, " ")
}

// No announcement is used before all objects that grant it are known, in any order.
func TestAnnouncementsAreUsedWhenAllGrantsAreKnown(t *testing.T) {
	steps := map[string]func(*lab){
		"node":         func(l *lab) { l.Node("n2", grants([]string{"10.200.0.12"})) },
		"block":        func(l *lab) { l.block("10.9.0.64/26", "pods", "n2") },
		"pool":         func(l *lab) { l.Pool("pods", "10.9.0.0/16", 0, nil) },
		"announcement": func(l *lab) { l.announces("10.9.0.64/26") },
	}
	takeBack := map[string]func(*lab){
		"node": func(l *lab) { l.Remove("nodes", "", "n2") }, "block": func(l *lab) {
			l.Remove(ipblocks, "", "10.9.0.64-26")
		},
		"announcement": func(l *lab) { l.announces() },
	}
	for _, order := range permutations("node", "block", "pool", "announcement") {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			l := newLab(t)
			c := l.Known(nil)
			for i, step := range order {
				steps[step](l)
				if i < len(order)-1 {
					l.Eventually("the watch has the "+step, func() bool { return c.Sees(step) })
				}
				if got := reached(c); i < len(order)-1 && strings.Contains(got, "10.9") {
					t.Fatalf("after %v of %v there is %s", order[:i+1], order, got)
				}
			}
			l.Eventually("the block is reached", func() bool { return reached(c) == "n2[10.9.0.64/26]" })
			gone := order[len(order)-1]
			if takeBack[gone] == nil {
				gone = "block"
			}
			takeBack[gone](l)
			l.Eventually("the block is not reached without the "+gone, func() bool {
				return !strings.Contains(reached(c), "10.9")
			})
			steps[gone](l)
			l.Eventually("it is reached again", func() bool { return reached(c) == "n2[10.9.0.64/26]" })
		})
	}
}

func permutations(of ...string) (all [][]string) {
	if len(of) < 2 {
		return [][]string{of}
	}
	for i := range of {
		rest := append(append([]string{}, of[:i]...), of[i+1:]...)
		for _, p := range permutations(rest...) {
			all = append(all, append([]string{of[i]}, p...))
		}
	}
	return all
}

func TestABlockIsNotReachedAtItsFormerNode(t *testing.T) {
	l := newLab(t)
	l.Node("n2", grants([]string{"10.200.0.12"}))
	l.Pool("pods", "10.9.0.0/16", 0, nil)
	l.block("10.9.0.64/26", "pods", "n2")
	l.announces("10.9.0.64/26")
	c := l.Known(nil)
	l.Eventually("the block is reached", func() bool { return reached(c) == "n2[10.9.0.64/26]" })
	for _, other := range []v1.NodeName{"n3", "n1", ""} {
		l.block("10.9.0.64/26", "pods", other)
		l.Eventually(fmt.Sprintf("the block is that of %q", other), func() bool {
			return reached(c) == "n2[]" && len(c.Mesh().Rejected) == 1
		})
		l.block("10.9.0.64/26", "pods", "n2")
		l.Eventually("the block is reached again", func() bool { return reached(c) == "n2[10.9.0.64/26]" })
	}
	l.Put(serviceRanges, &networkingv1.ServiceCIDR{
		ObjectMeta: named("late"),
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/24"}},
	})
	l.Eventually("it is a Service range", func() bool { return reached(c) == "n2[]" })
}

func TestBlocksOfACustomNetworkAreReached(t *testing.T) {
	l := newLab(t)
	l.Node("n2", grants([]string{"10.200.0.12"}))
	l.Network("blue", v1.CustomNetworkSpec{Type: v1.L3, CIDRs: []v1.CIDR{"10.5.0.0/16"}})
	l.Put(ipblocks, &v1.IPBlock{
		ObjectMeta: named("blue.10.5.2.0-26"),
		Spec:       v1.IPBlockSpec{CIDR: "10.5.2.0/26", Network: "blue", Node: "n2"},
	})
	l.Put(nodeNets, &v1.NodeNetwork{ObjectMeta: named("n2"), Spec: v1.NodeNetworkSpec{Networks: []v1.NodePart{
		{Name: "default", CIDRs: []v1.CIDR{"10.5.2.0/26"}}, {
			Name:  "blue",
			CIDRs: []v1.CIDR{"10.5.2.0/26", "10.5.3.0/26"},
		},
	}}})
	c := l.Known(nil)
	if got := reached(c); got != "n2[] n2[10.5.2.0/26]" || len(c.Mesh().Rejected) != 2 {
		t.Errorf("reached %q, rejected %v", got, c.Mesh().Rejected)
	}
}

func TestKubernetesWithoutServiceRangesIsComplete(t *testing.T) {
	l := newLab(t)
	l.Uninstall(serviceRanges)
	l.Known(nil)
}

func TestServiceRangesAreAwaited(t *testing.T) {
	l := newLab(t)
	l.Node("n2", grants([]string{"10.200.0.12"}, "10.96.0.0/24"))
	l.announces("10.96.0.0/24")
	l.Fail(func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/servicecidrs") {
			return http.StatusInternalServerError
		}
		return 0
	})
	c := l.Cluster(nil)
	l.Eventually("only the Service ranges are missing", func() bool {
		return fmt.Sprint(c.Missing()) == "[service ranges]"
	})
	if m := c.Mesh(); len(m.Nodes) > 0 {
		t.Errorf("before the Service ranges are known there is %+v", m)
	}
	l.Put(serviceRanges, &networkingv1.ServiceCIDR{
		ObjectMeta: named("kubernetes"),
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}},
	})
	l.Fail(nil)
	l.Eventually("the view is complete", func() bool { return c.View().Complete })
	if m := c.Mesh(); len(m.Rejected) != 1 || !strings.Contains(m.Rejected[0].Reason, "Service range") {
		t.Errorf("rejected %v", m.Rejected)
	}
}

// A restart of the agent must not cut off pods of a deleted pool.
func TestBlocksOfADeletedPoolAreReachedByTheNextAgent(t *testing.T) {
	l := newLab(t)
	l.Node("n2", grants([]string{"10.200.0.12"}))
	l.Pool("pods", "10.9.0.0/16", 0, nil)
	l.block("10.9.0.64/26", "pods", "n2")
	l.announces("10.9.0.64/26")
	c := l.Known(nil)
	l.Eventually("the block is reached", func() bool { return reached(c) == "n2[10.9.0.64/26]" })
	l.Remove(pools, "", "pods")
	l.Eventually("what is left of the pool is remembered", func() bool {
		c.Mesh()
		return len(c.View().Former.Blocks) == 1
	})
	known := c.View()
	known.Complete = false // as it is read from the state file
	next := l.Known(func(o *nodeview.Config) { o.Known = &known })
	if got := reached(next); got != "n2[10.9.0.64/26]" {
		t.Errorf("the next agent reaches %q", got)
	}
	other := l.Known(nil)
	if got := reached(other); got != "n2[]" {
		t.Errorf("an agent that never saw the pool reaches %q", got)
	}
}

// The status of blocks and heartbeats of other nodes change nothing on this node.
func TestIrrelevantChangesOfOtherNodesAreIgnored(t *testing.T) {
	l := newLab(t)
	l.Node("n2", grants([]string{"10.200.0.12"}))
	l.block("10.9.0.64/26", "pods", "n2")
	c := l.Known(nil)
	l.Eventually("both are seen", func() bool { return len(c.Mesh().Nodes) == 0 && c.View().Complete })
	drain := func() {
		for {
			select {
			case <-c.Changed():
			default:
				return
			}
		}
	}
	l.Network("first", v1.CustomNetworkSpec{Type: v1.L2})
	l.Eventually("the network is seen", func() bool { return len(c.View().Networks) == 1 })
	requests := len(l.Requests())
	round := 0
	// A token of the objects before may come late, so only one round must be quiet.
	l.Eventually("a change of the status is no change of the view", func() bool {
		drain()
		round++
		l.Node("n2", func(n *corev1.Node) {
			grants([]string{"10.200.0.12"})(n)
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		})
		var b v1.IPBlock
		l.Object(ipblocks, "", "10.9.0.64-26", &b)
		b.Status.Used = int32(round)
		l.Put(ipblocks, &b)
		l.Object(ipblocks, "", b.Name, &b)
		var n2 corev1.Node
		l.Object("nodes", "", "n2", &n2)
		l.Eventually("the watches have both", func() bool { return c.Has(n2.ResourceVersion, b.ResourceVersion) })
		select {
		case <-c.Changed():
			return false
		case <-time.After(100 * time.Millisecond):
			return true
		}
	})
	if n := len(l.Requests()); n != requests {
		t.Errorf("%d requests were sent", n-requests)
	}
}

func TestTheMeshHasTheAnnouncedNodes(t *testing.T) {
	l := newLab(t)
	created := time.Unix(1_700_000_000, 0)
	l.Node("n2", func(n *corev1.Node) {
		grants([]string{"10.200.0.12", "fd00::12"}, "10.1.0.64/26")(n)
		n.CreationTimestamp = metav1.NewTime(created)
	})
	c := l.Known(nil)
	announcer := func(node string) *announcement.Writer {
		return &announcement.Writer{Client: l.Client(), Node: node, Log: slog.New(slog.DiscardHandler)}
	}
	if err := announcer("n1").Announce(t.Context(), announcement.Announcement{UID: "uid of n1"}); err != nil {
		t.Fatal(err)
	}
	spec := v1.NodeNetworkSpec{
		Addresses: []v1.IP{"10.200.0.12", "fd00::12"},
		Networks:  []v1.NodePart{{Name: "default", CIDRs: []v1.CIDR{"10.1.0.64/26"}}},
	}
	if err := announcer("n2").Announce(t.Context(), announcement.Announcement{
		UID:  "uid of n2",
		Spec: spec,
	}); err != nil {
		t.Fatal(err)
	}
	l.Eventually("both are seen", func() bool {
		return c.NodeID() != 0 && len(c.Mesh().Nodes) == 1 && c.Mesh().Nodes[0].ID != 0
	})
	n := c.Mesh().Nodes[0]
	if n.Name != "n2" || n.ID == c.NodeID() || len(n.Addresses) != 2 || len(n.Parts) != 1 ||
		n.Parts[0].Blocks[0].String() != "10.1.0.64/26" {
		t.Errorf("node %+v", n)
	}
	if !n.Created.Equal(created) {
		t.Errorf("the Node was created %v, want %v", n.Created, created)
	}
}

// Nodes with other tunnels are left out, and named: packets between them would be lost.
func TestNodesWithOtherTunnelsAreRejected(t *testing.T) {
	none := v1.Tunnel{Type: v1.TunnelNone}
	vxlan4 := v1.Tunnel{Type: v1.TunnelVXLAN, IPFamily: v1.IPv4, Port: 4789}
	for what, tt := range map[string]struct {
		own, tunnel v1.Tunnel
		refused     string
	}{
		"the same": {vxlan4, vxlan4, ""},
		"another MTU": {
			vxlan4, v1.Tunnel{Type: v1.TunnelVXLAN, IPFamily: v1.IPv4, Port: 4789, MTU: 9000}, "",
		},
		"an agent without ports": {vxlan4, v1.Tunnel{Type: v1.TunnelVXLAN}, ""},
		"a former release":       {vxlan4, v1.Tunnel{Type: v1.TunnelVXLAN, Port: 4789}, ""},
		"nothing announced":      {vxlan4, v1.Tunnel{}, ""},
		"nothing known here":     {v1.Tunnel{}, vxlan4, ""},
		"none on both":           {none, none, ""},
		"another port": {
			vxlan4, v1.Tunnel{Type: v1.TunnelVXLAN, IPFamily: v1.IPv4, Port: 8472},
			"UDP port 8472, and those of this node 4789: kubernetes.vxlanPort",
		},
		"another family": {
			vxlan4, v1.Tunnel{Type: v1.TunnelVXLAN, IPFamily: v1.IPv6, Port: 4789},
			"addresses of IPv6, and those of this node IPv4: kubernetes.tunnel",
		},
		"no tunnels there": {
			vxlan4, none, "its encapsulation is None, and that of this node VXLAN: kubernetes.tunnel",
		},
		"no tunnels here": {
			none, vxlan4, "its encapsulation is VXLAN, and that of this node None: kubernetes.tunnel",
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLab(t)
			l.Node("n2", grants([]string{"10.200.0.12"}))
			l.Put(nodeNets, &v1.NodeNetwork{ObjectMeta: named("n2"), Spec: v1.NodeNetworkSpec{Tunnel: tt.tunnel}})
			c := l.Known(func(config *nodeview.Config) { config.Tunnel = tt.own })
			m := c.Mesh()
			if tt.refused == "" {
				if len(m.Nodes) != 1 || len(m.Rejected) != 0 {
					t.Errorf("nodes %v, rejected %v", m.Nodes, m.Rejected)
				}
				return
			}
			if len(m.Nodes) != 0 || len(m.Rejected) != 1 || !strings.Contains(m.Rejected[0].String(), "node n2: ") ||
				!strings.Contains(m.Rejected[0].Reason, tt.refused) {
				t.Errorf("nodes %v, rejected %v, want %q", m.Nodes, m.Rejected, tt.refused)
			}
		})
	}
}
