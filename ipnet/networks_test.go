package ipnet_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// numbers returns the numbers of the custom networks, by name: table, bridge domain, VNI.
func (n *node) numbers() map[string][3]uint32 {
	numbers := make(map[string][3]uint32)
	for _, s := range n.Networks.Saved() {
		numbers[s.Network.Name] = [3]uint32{s.Table, s.BridgeDomain, s.VNI}
	}
	return numbers
}

func (n *node) checkNumbers(t *testing.T, want map[string][3]uint32) {
	t.Helper()
	if got := n.numbers(); !maps.Equal(got, want) {
		t.Errorf("numbers %v, want %v", got, want)
	}
}

func TestNumbersAreStableAndFreedWithTheirNetwork(t *testing.T) {
	a := custom("a", pod.L3, "10.5.0.0/24")
	b := custom("b", pod.L2, "10.5.0.0/24")
	c := custom("c", pod.L2)
	d := custom("d", pod.L3, "10.5.0.0/24")
	for _, order := range [][]pod.Network{{a, b, c}, {c, b, a}, {b, c, a}} {
		n := newNode(t, four).run(t)
		n.set(t, order...)
		want := map[string][3]uint32{"a": {100, 0, 100}, "b": {101, 1, 101}, "c": {0, 2, 102}}
		n.checkNumbers(t, want)
		n = n.restarted(t)
		n.checkNumbers(t, want)
		n.set(t, d, c, b) // a's numbers are not reused while the dataplane may still use them
		n.checkNumbers(t, map[string][3]uint32{"b": {101, 1, 101}, "c": {0, 2, 102}, "d": {102, 0, 103}})
		n.set(t, a, b, c, d)
		n.checkNumbers(t, map[string][3]uint32{
			"a": {100, 0, 100},
			"b": {101, 1, 101},
			"c": {0, 2, 102},
			"d": {102, 0, 103},
		})
	}
}

func TestExhaustedNumbersAreNamed(t *testing.T) {
	l3 := custom("z3", pod.L3, "10.5.0.0/24")
	l2 := custom("z2", pod.L2)
	tests := []struct {
		name   string
		ranges networks.Ranges
		want   map[string]string
	}{
		{
			"tables", networks.Ranges{Tables: networks.IDs{First: 7, Last: 7}},
			map[string]string{"z3": "no VRF table from 7 to 7 is free: remove a network"},
		},
		{
			"bridge domains", networks.Ranges{BridgeDomains: networks.IDs{First: 1, Last: 1}},
			map[string]string{"z2": "no bridge domain from 1 to 1 is free: remove a network"},
		},
		{"VNIs", networks.Ranges{VNIs: networks.IDs{First: 8, Last: 9}}, map[string]string{
			"z2": "no VNI from 8 to 9 is free: remove a network", "z3": "no VNI from 8 to 9 is free: remove a network",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := networks.Config{Pools: []netaddr.Pool{four}, Ranges: tt.ranges}
			n := nodeOf(t, ipnet.Config{Networks: config}).run(t)
			a := custom("a", pod.L3, "10.5.0.0/24")
			b := custom("b", pod.L2)
			if refused := n.set(t, a, b, l3, l2); !maps.Equal(refused, tt.want) {
				t.Errorf("refused %v, want %v", refused, tt.want)
			}
			n.set(t)
			if refused := n.set(t, l3, l2); len(refused) > 0 {
				t.Errorf("after the removal of the others: refused %v", refused)
			}
		})
	}
}

func TestTableOfPodsIsNotAssignedToANetwork(t *testing.T) {
	n := nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}, PodVRFTable: 100}}).run(t)
	n.set(t, custom("a", pod.L3, "10.5.0.0/24"))
	n.checkNumbers(t, map[string][3]uint32{"a": {101, 0, 100}})
}

func TestInvalidNetworksAreRefusedAndOthersAreMade(t *testing.T) {
	with := func(change func(*pod.Network)) pod.Network {
		n := custom("x", pod.L3, "10.5.0.0/24")
		change(&n)
		return n
	}
	tests := []struct {
		name    string
		network pod.Network
		want    string
	}{
		{"no label", with(func(n *pod.Network) { n.Name = "X" }), "must be a DNS label"},
		{
			"the name of one that always exists", with(func(n *pod.Network) { n.Name = "stub" }),
			"other than default and stub",
		},
		{"no type", with(func(n *pod.Network) { n.Type = "" }), `type "" is neither L2 nor L3`},
		{"no CIDRs of a routed network", with(func(n *pod.Network) { n.CIDRs = nil }), "needs CIDRs"},
		{"two of a family", custom("x", pod.L3, "10.5.0.0/24", "10.6.0.0/24"), "at most one of each family"},
		{"host bits", custom("x", pod.L3, "10.5.0.1/24"), "did you mean 10.5.0.0/24?"},
		{"too small", custom("x", pod.L3, "10.5.0.0/31"), "too small"},
		{"an MTU below IPv6's minimum", with(func(n *pod.Network) {
			n.CIDRs = custom("", "", "fd00::/64").CIDRs
			n.MTU = 1000
		}), "MTU 1000 is not within 1280"},
		{"a VNI of more than 24 bits", with(func(n *pod.Network) { n.VNI = 1 << 24 }), "VNI 16777216 is above"},
		{"the VNI of another network", with(func(n *pod.Network) { n.VNI = 77 }), "VNI 77 is already used by network good"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four).run(t)
			good := custom("good", pod.L2)
			good.VNI = 77
			refused := n.set(t, tt.network, good)
			if len(refused) != 1 || !strings.Contains(refused[tt.network.Name], tt.want) {
				t.Errorf("refused %v, want %q", refused, tt.want)
			}
			n.checkNumbers(t, map[string][3]uint32{"good": {0, 1, 77}})
		})
	}
}

func TestDuplicateNetworkIsNotChanged(t *testing.T) {
	n := newNode(t, four).run(t)
	was := custom("a", pod.L3, "10.5.0.0/24")
	other := custom("a", pod.L2)
	n.set(t, was)
	before := n.state(t)
	if refused := n.set(t, was, other); refused["a"] != "it is given twice" || n.state(t) != before {
		t.Errorf("refused %v, state\n%s, was\n%s", refused, n.state(t), before)
	}
}

func TestNetworkWithPodsKeepsWhatTheyNeed(t *testing.T) {
	was := custom("blue", pod.L3, "10.5.0.0/24")
	changed := func(change func(*pod.Network)) []pod.Network {
		n := was
		change(&n)
		return []pod.Network{n}
	}
	tests := []struct {
		name     string
		networks []pod.Network
		want     string // part of the refusal; "" = changed
	}{
		{
			"removed", nil,
			"it cannot be removed: pod default/a (weft/c0ffee-a/eth0) and 1 more are attached to it; delete them first",
		},
		{
			"another type", changed(func(n *pod.Network) { n.Type = pod.L2 }),
			"its type, CIDRs, gateway, VNI and direct cannot change: pod default/a",
		},
		{
			"other CIDRs", changed(func(n *pod.Network) { n.CIDRs = custom("", "", "10.5.0.0/16").CIDRs }),
			"cannot change",
		},
		{"a VNI instead of the node's own", changed(func(n *pod.Network) { n.VNI = 9 }), ""},
		{"the current VNI", changed(func(n *pod.Network) { n.VNI = 100 }), ""},
		{"another MTU", changed(func(n *pod.Network) { n.MTU = 1400 }), ""},
		{"for other namespaces", changed(func(n *pod.Network) { n.Namespaces = []string{"other"} }), ""},
		{"anti-spoof", changed(func(n *pod.Network) { n.AntiSpoof = true }), ""},
		{"an invalid one", changed(func(n *pod.Network) { n.Type = "L4" }), `type "L4"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four, six).run(t)
			n.set(t, was)
			a := n.add(t, asking("a", "x1/tap/blue", ""))
			n.add(t, asking("bb", "x1/veth/blue", ""))
			before := n.state(t)
			values := n.committer.Values()
			refused := n.set(t, tt.networks...)
			switch {
			case tt.want == "" && (len(refused) > 0 || n.state(t) == before):
				t.Errorf("refused %v", refused)
			case tt.want != "" && !strings.Contains(refused["blue"], tt.want),
				tt.want != "" && len(tt.networks) > 0 && n.state(t) != before,
				// it is removed: that closes it
				len(tt.networks) == 0 && strings.Replace(n.state(t), `,"closed":true`, "", 1) != before:
				t.Errorf("refused %v, want %q; before\n%s\nafter\n%s", refused, tt.want, before, n.state(t))
			}
			for _, key := range n.Pods.Objects(a) {
				if fmt.Sprint(n.committer.Values()[key]) != fmt.Sprint(values[key]) {
					t.Errorf("%s of a running pod has changed", key)
				}
			}
			n.delete(t, asking("a", "", ""))
			n.delete(t, asking("bb", "", ""))
			if refused := n.set(t); len(refused) > 0 || len(n.saver.Bucket("networks")) > 0 {
				t.Errorf("without pods: refused %v", refused)
			}
			leases := slices.DeleteFunc(n.kept().Leases, func(l ipam.Lease) bool {
				return l.Pool == four.Name || l.Pool == six.Name
			})
			if len(leases) > 0 {
				t.Errorf("leases of the removed network: %v", leases)
			}
		})
	}
}

// The test covers a bug: a pod that was added before the controller assigned the network's VNI had no tunnels as long
// as it ran.
func TestNetworkWithPodsGetsALaterVNI(t *testing.T) {
	n := newNode(t, four).run(t)
	blue := custom("blue", pod.L3, "10.5.0.0/24")
	red := custom("red", pod.L3, "10.6.0.0/24")
	red.VNI = 9
	n.set(t, blue, red)
	n.add(t, asking("a", "x1/tap/blue", ""))
	for _, step := range []struct {
		vni  uint32
		want string
	}{{9, "VNI 9 is already used by network red"}, {77, ""}, {78, "its type, CIDRs, gateway, VNI and direct cannot change"}} {
		blue.VNI = step.vni
		if refused := n.set(t, blue, red); (step.want == "") != (len(refused) == 0) ||
			!strings.Contains(refused["blue"], step.want) {
			t.Errorf("VNI %d: refused %v, want %q", step.vni, refused, step.want)
		}
	}
	// Other nodes use the network's new VNI, and maybe another network has the former one.
	if kept := n.saver.Bucket("networks")["blue"].(networks.SavedNetwork); kept.VNI != 0 || !kept.Network.Closed {
		t.Errorf("kept %+v", kept)
	}
	if refused := n.set(t, blue, red); len(refused) > 0 || n.Networks.IsClosed("blue") {
		t.Errorf("next attempt: refused %v, closed %v", refused, n.Networks.IsClosed("blue"))
	}
}

// A node that was down has pods on a deleted network whose VNI may be in use again.
func TestDeletedNetworkHasNoTunnels(t *testing.T) {
	n := newNode(t, four).run(t)
	blue := custom("blue", pod.L3, "10.5.0.0/24")
	red := custom("red", pod.L3, "10.5.0.0/24")
	blue.VNI = 77
	red.VNI = 77
	n.set(t, blue)
	a := n.add(t, asking("a", "x1/tap/blue", ""))
	values := n.committer.Values()
	refused := n.set(t, red)
	if len(refused) != 1 || !strings.Contains(refused["blue"], "it cannot be removed: pod default/a") {
		t.Errorf("refused %v", refused)
	}
	for _, key := range n.Pods.Objects(a) {
		if fmt.Sprint(n.committer.Values()[key]) != fmt.Sprint(values[key]) {
			t.Errorf("%s of the pod has changed", key)
		}
	}
	if kept := n.saver.Bucket("networks")["blue"].(networks.SavedNetwork); kept.VNI != 0 || kept.Network.VNI != 0 {
		t.Errorf("kept %+v", kept)
	}
}

// A conflict on a node fails the pod's ADD, instead of leaving a running pod without connectivity.
func TestPodOnAConflictingNetworkFailsWithTheReason(t *testing.T) {
	n := newNode(t, four).run(t)
	blue := custom("blue", pod.L3, "10.5.0.0/24")
	red := custom("red", pod.L3, "10.5.0.0/24")
	blue.VNI = 77
	red.VNI = 77
	n.set(t, blue, red)
	err := n.refuses(t, asking("a", "x1/tap/red", ""))
	if want := "interface x1: network red cannot be used on this node: VNI 77 is already used by network blue"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := n.loop.Do(t.Context(), &pod.SetNetworks{
		Networks: []pod.Network{blue},
		Invalid:  map[string]string{"red": "cidrs: no CIDR"},
	}); err != nil {
		t.Fatal(err)
	}
	err = n.refuses(t, asking("a", "x1/tap/red", ""))
	if want := "network red cannot be used on this node: cidrs: no CIDR"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestNetworkThatIsBeingDeletedGetsNoMorePods(t *testing.T) {
	n := newNode(t, four).run(t)
	blue := custom("blue", pod.L3, "10.5.0.0/24")
	n.set(t, blue)
	if n.Networks.IsClosed("blue") {
		t.Error("closed from the start")
	}
	n.add(t, asking("a", "x1/tap/blue", ""))
	blue.Closed = true
	blue.CIDRs = custom("", "", "10.9.0.0/24").CIDRs // the change of CIDRs is still refused
	if refused := n.set(t, blue); len(refused) > 0 || !n.Networks.IsClosed("blue") {
		t.Errorf("refused %v, closed: %v", refused, n.Networks.IsClosed("blue"))
	}
	err := n.refuses(t, asking("bb", "x1/tap/blue", ""))
	if err == nil || !strings.Contains(err.Error(), "network blue is being deleted; no pod can be added to it") {
		t.Errorf("error of a pod: %v", err)
	}
	n.delete(t, asking("a", "", ""))
	if refused := n.set(t); len(refused) > 0 || len(n.saver.Bucket("networks")) > 0 {
		t.Errorf("without pods: refused %v", refused)
	}
}

func TestNetworkWithoutPodsCanChange(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("a", pod.L3, "10.5.0.0/24"))
	ev := asking("a", "x1/tap/a", "")
	n.add(t, ev)
	n.delete(t, ev)
	if refused := n.set(t, custom("a", pod.L2, "10.6.0.0/24")); len(refused) > 0 {
		t.Fatal(refused)
	}
	n.checkNumbers(t, map[string][3]uint32{"a": {100, 1, 100}})
	if got := n.add(t, ev).Interfaces[1].Addresses[0].String(); got != "10.6.0.2/24" {
		t.Errorf("address %s", got)
	}
	fresh := newNode(t, four).run(t)
	fresh.set(t, custom("a", pod.L2, "10.6.0.0/24"))
	fresh.add(t, asking("a", "x1/tap/a", ""))
	if got, want := networkValues(n), networkValues(fresh); got != want {
		t.Errorf("values\n%s\nwant those of a new network\n%s", got, want)
	}
}

// networkValues returns the values of network a.
func networkValues(n *node) string {
	var lines []string
	for key, value := range n.committer.Values() {
		if strings.Contains(key, "weft-gw-a") || strings.Contains(key, "weft:a") && !strings.Contains(key, "x1") {
			lines = append(lines, fmt.Sprint(key, value))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestOrderOfCIDRsIsNoChange(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("a", pod.L3, "fd00::/64", "10.5.0.0/24"))
	n.add(t, asking("a", "x1/tap/a", ""))
	before := n.state(t)
	if refused := n.set(t, custom("a", pod.L3, "10.5.0.0/24", "fd00::/64")); len(refused) > 0 || n.state(t) != before {
		t.Errorf("refused %v, state\n%s, was\n%s", refused, n.state(t), before)
	}
}

func TestThousandNetworksAreAddedAndRemoved(t *testing.T) {
	n := newNode(t, four).run(t)
	before := list(t, n.committer.Values())
	var networks []pod.Network
	for i := range 1000 {
		networks = append(networks, custom(fmt.Sprint("n", i), []pod.NetworkType{pod.L2, pod.L3}[i%2], "10.5.0.0/24"))
	}
	networks[990] = custom("n990", pod.L2)
	for range 2 {
		if refused := n.set(t, networks...); len(refused) > 0 {
			t.Fatal(refused)
		}
		for i := range 10 {
			n.add(t, asking(fmt.Sprint(i), fmt.Sprintf("x/tap/n%d,y/tap/n%d", i, 990), ""))
		}
		if refused := n.set(t); len(refused) != 11 {
			t.Errorf("refused %v", refused)
		}
		for i := range 10 {
			n.delete(t, sandbox(fmt.Sprint(i)))
		}
		n.set(t)
		n.now = n.now.Add(2 * coolDown)
	}
	leases := n.kept().Leases
	if len(n.numbers()) > 0 || slices.ContainsFunc(leases, func(l ipam.Lease) bool { return l.Pool != four.Name }) {
		t.Errorf("left over: networks %v, leases %v", n.numbers(), leases)
	}
	if after := list(t, n.committer.Values()); after != before {
		t.Errorf("values\n%s\nwere\n%s", after, before)
	}
}
