package ipnet_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// meshed is the configuration of a cluster's node with tunnels.
func meshed(tunnel string, pools ...netaddr.Pool) ipnet.Config {
	return ipnet.Config{
		Networks: networks.Config{Pools: pools, Tunnels: networks.Tunnels{Tunnel: tunnel}},
		Mesh:     mesh.Config{Uplink: "eth9"},
	}
}

// self returns this node, with both families.
func self() pod.Node {
	return pod.Node{ID: 1, Name: "self", Addresses: addrs("192.0.2.1", "2001:db8:ff::1")}
}

// other returns the node with that ID, with blocks of the network default.
func other(id uint32, blocks ...string) pod.Node {
	n := pod.Node{
		ID:        id,
		Name:      fmt.Sprint("node", id),
		Addresses: addrs(fmt.Sprint("192.0.2.", id), fmt.Sprint("2001:db8:ff::", id)),
	}
	return with(n, "default", blocks...)
}

// with adds blocks of a network to a node.
func with(n pod.Node, network string, blocks ...string) pod.Node {
	part := pod.NodePart{Network: network}
	for _, b := range blocks {
		part.Blocks = append(part.Blocks, netip.MustParsePrefix(b))
	}
	n.Parts = append(slices.Clone(n.Parts), part)
	return n
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, a := range texts {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func vni(n pod.Network, vni uint32) pod.Network {
	n.VNI = vni
	return n
}

// join sets the other nodes, and returns the refused ones with reasons.
func (n *node) join(t rapid.TB, self pod.Node, nodes ...pod.Node) map[string]string {
	t.Helper()
	ev := &pod.SetNodes{Self: self, Nodes: nodes, From: "test"}
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return ev.Refused
}

// keysSince returns the keys that changes set or deleted, without the first ones.
func (n *node) keysSince(changes int) []string {
	var keys []string
	for _, c := range n.committer.Changes()[changes:] {
		for _, s := range c.Set {
			keys = append(keys, s.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestValuesOfTheMesh(t *testing.T) {
	for _, tunnel := range []string{networks.TunnelVXLAN4, networks.TunnelVXLAN6, networks.TunnelNone} {
		for family, pools := range families {
			name := fmt.Sprintf("mesh-%s-%s", tunnel, family)
			t.Run(name, func(t *testing.T) {
				n := nodeOf(t, meshed(tunnel, pools...)).run(t)
				bare := list(t, n.committer.Values())
				n.join(t, self())
				alone := n.committer.Values()
				if refused := n.join(t, self(), other(2, blocksOf(family)...)); len(refused) > 0 {
					t.Fatal(refused)
				}
				both := n.committer.Values()
				golden(t, name, list(t, both))
				again := n.restarted(t)
				if got, want := list(t, again.committer.Values()), list(t, both); got != want {
					t.Errorf("after a restart without an API server\n%s\nwant\n%s", got, want)
				}
				again.join(t, self())
				if got, want := list(t, again.committer.Values()), list(t, alone); got != want {
					t.Errorf("after the node has left\n%s\nwant\n%s", got, want)
				}
				again.join(t, pod.Node{})
				if got := list(t, again.committer.Values()); got != bare {
					t.Errorf("without an ID of its own\n%s\nwant\n%s", got, bare)
				}
			})
		}
	}
}

func TestBorrowedAddressIsRoutedToItsBorrower(t *testing.T) {
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, families["ip4"]...)).run(t)
	if refused := n.join(t, self(), other(2, "10.1.2.0/26"), other(3, "10.1.2.7/32")); len(refused) > 0 {
		t.Fatal(refused)
	}
	for prefix, hop := range map[string]string{"10.1.2.0/26": "169.254.0.2", "10.1.2.7/32": "169.254.0.3"} {
		route, there := n.committer.Values()["vpp.route/weft:pods/ip4/"+prefix].(wire.Route)
		if !there || len(route.Paths) != 1 || route.Paths[0].NextHop.String() != hop {
			t.Errorf("%s: route %+v, want next hop %s", prefix, route, hop)
		}
	}
}

func blocksOf(family string) []string {
	return map[string][]string{
		"ip4":  {"10.1.2.0/26"},
		"ip6":  {"2001:db8:2::/122"},
		"dual": {"10.1.2.0/26", "2001:db8:2::/122"},
	}[family]
}

func TestValuesOfANetworkInTheMesh(t *testing.T) {
	blocks := map[string][]string{
		"ip4":  {"10.5.0.64/26"},
		"ip6":  {"2001:db8:5::80/122"},
		"dual": {"10.5.0.64/26", "2001:db8:5::80/122"},
		"none": nil,
	}
	cidrs := maps.Clone(cidrs)
	cidrs["none"] = nil
	for family, cidrs := range cidrs {
		for _, kind := range []pod.NetworkType{pod.L2, pod.L3} {
			if kind == pod.L3 && family == "none" {
				continue
			}
			name := fmt.Sprintf("mesh-%s-%s", kind, family)
			t.Run(name, func(t *testing.T) {
				n := nodeOf(t, meshed(networks.TunnelVXLAN4, four, six)).run(t)
				n.join(t, self(), with(other(2, "10.1.2.0/26"), "blue", blocks[family]...))
				before := n.committer.Values()
				blue := vni(custom("blue", kind, cidrs...), 500)
				if refused := n.set(t, blue); len(refused) > 0 {
					t.Fatal(refused)
				}
				after := n.committer.Values()
				golden(t, name, list(t, without(after, before)))

				late := nodeOf(t, meshed(networks.TunnelVXLAN4, four, six)).run(t)
				late.set(t, blue)
				late.join(t, self(), with(other(2, "10.1.2.0/26"), "blue", blocks[family]...))
				if got, want := list(t, late.committer.Values()), list(t, after); got != want {
					t.Errorf("nodes after networks:\n%s\nwant the same as networks after nodes\n%s", got, want)
				}
				n.set(t, vni(blue, 0)) // no longer the cluster's
				n.set(t)
				if got, want := list(t, n.committer.Values()), list(t, before); got != want {
					t.Errorf("without the network\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// The test counts operations when nodes join, leave and change, among a hundred nodes and three networks.
func TestChangeOfANodeChangesOnlyItsOwnObjects(t *testing.T) {
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
	n.set(t, vni(custom("blue", pod.L3, "10.5.0.0/16"), 500), vni(custom("red", pod.L2), 600),
		custom("here", pod.L3, "10.6.0.0/16"))
	node := func(id uint32) pod.Node {
		return with(other(id, fmt.Sprintf("10.2.%d.0/26", id)), "blue", fmt.Sprintf("10.5.%d.0/26", id))
	}
	var nodes []pod.Node
	for id := range uint32(100) {
		nodes = append(nodes, node(id+2))
	}
	n.join(t, self(), nodes...)

	const (
		perRouted  = 5
		perBridged = 2
		hostRoute  = 1
	) // tunnel, member, MAC, neighbour, route
	const peerRoute = 1 // of tunnel packets
	const perNode = 2*perRouted + perBridged + hostRoute + peerRoute
	const peers = 1 // the table of tunnel endpoints
	// the table of all pods' ranges and all nodes; these nodes' ranges are outside of this node's pools
	const ranges = 1
	moved := node(50)
	moved.Addresses = addrs("192.0.2.250")
	more := node(50)
	more.Parts[0].Blocks = append(slices.Clone(more.Parts[0].Blocks), netip.MustParsePrefix("10.2.200.0/26"))
	tests := []struct {
		name   string
		change func(nodes []pod.Node) []pod.Node
		want   int
	}{
		{"nothing new", func(nodes []pod.Node) []pod.Node { slices.Reverse(nodes); return nodes }, 0},
		{
			"a node joins", func(nodes []pod.Node) []pod.Node { return append(nodes, node(200)) },
			perNode + ranges + peers,
		},
		{"a node leaves", func(nodes []pod.Node) []pod.Node { return nodes[:99] }, perNode + ranges + peers},
		{
			"a node's address changes", func(nodes []pod.Node) []pod.Node { nodes[48] = moved; return nodes },
			3 + 2*peerRoute + ranges + peers,
		},
		{"a node gets another block", func(nodes []pod.Node) []pod.Node { nodes[48] = more; return nodes }, 2 + ranges},
		{
			"a node's ID changes", func(nodes []pod.Node) []pod.Node { nodes[48].ID = 300; return nodes },
			2*(perNode-2-hostRoute-peerRoute) + 2,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n.join(t, self(), nodes...)
			before := len(n.committer.Changes())
			if refused := n.join(t, self(), tt.change(slices.Clone(nodes))...); len(refused) > 0 {
				t.Fatal(refused)
			}
			if keys := n.keysSince(before); len(keys) != tt.want {
				t.Errorf("%d operations, want %d:\n%s", len(keys), tt.want, strings.Join(keys, "\n"))
			}
		})
	}
}

// withNode adds a node's addresses to a value that lists those of all nodes or of all peers.
func withNode(value any, n pod.Node) any {
	switch v := value.(type) {
	case wire.Masquerade:
		v.Guard.Nodes = slices.Clone(v.Guard.Nodes)
		for _, a := range n.Addresses {
			v.Guard.Nodes = append(v.Guard.Nodes, netaddr.Single(a))
		}
		slices.SortFunc(v.Guard.Nodes, netip.Prefix.Compare)
		return v
	case wire.TunnelNAT:
		v.Peers = append(slices.Clone(v.Peers), n.Addresses[0]) // of the tunnels' family, and the highest
		return v
	}
	return value
}

func TestUnreachableNodesDoNotAffectOthers(t *testing.T) {
	at := func(n pod.Node, addresses ...string) pod.Node { n.Addresses = addrs(addresses...); return n }
	named := func(n pod.Node, name string) pod.Node { n.Name = name; return n }
	good := other(2, "10.2.2.0/26")
	bad := func(blocks ...string) pod.Node { return other(3, blocks...) }
	numbered := func(id uint32) pod.Node { n := bad("10.2.3.0/26"); n.ID = id; return n }
	tests := []struct {
		name  string
		node  pod.Node
		want  string
		block bool // only the block is refused
	}{
		{"no ID", numbered(0), "it has no ID yet", false},
		{"an ID above the maximum", numbered(1 << 16), "its ID 65536 is above 65535", false},
		{"this node's ID", numbered(1), "its ID 1 is already used by node self", false},
		{"the ID of another node", numbered(2), "its ID 2 is already used by node node2", false},
		{"this node's name", named(numbered(3), "self"), "it has the name of this node", false},
		{"no address", at(bad()), "no address of the family that vxlan4 needs", false},
		{
			"no address of the tunnels' family", at(bad(), "2001:db8::3"), "no address of the family that vxlan4 needs",
			false,
		},
		{"a loopback address", at(bad(), "127.0.0.1"), "no address of the family", false},
		{"this node's address", at(bad(), "192.0.2.1"), "its address 192.0.2.1 is already used by node self", false},
		{"the address of another node", at(bad(), "192.0.2.2"), "its address 192.0.2.2 is already used by node node2", false},
		{
			"the block of another node", bad("10.2.2.0/26"),
			"block 10.2.2.0/26 of network default: it overlaps one of node node2", true,
		},
		{
			"inside the block of another node", bad("10.2.2.0/28"),
			"block 10.2.2.0/28 of network default: it overlaps one of node node2", true,
		},
		{
			"around the block of another node", bad("10.2.0.0/16"),
			"block 10.2.0.0/16 of network default: it overlaps one of node node2", true,
		},
		{"this node's block", bad("10.3.0.0/26"), "it overlaps one of node self", true},
		{"this node's pool", bad("10.1.0.0/28"), "it is not a part of 10.1.0.0/28, but all of it", true},
		{"a family that this node lacks", bad("2001:db8::/122"), "this node has no ip6 there", true},
		{"host bits", bad("10.2.3.1/26"), "has host bits set", true},
		{"the address of a pod here", bad("10.1.0.2/32"), "it is the address of pod default/a on this node", true},
		{"an address that this node allocates", bad("10.1.0.9/32"), "this node allocates it", true},
		{"an address that another lends", bad("10.2.2.7/32"), "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
			n.add(t, sandbox("a"))
			me := with(self(), "default", "10.3.0.0/26")
			n.join(t, me, good)
			before := n.committer.Values()
			refused := n.join(t, me, tt.node, good)
			if got := refused[tt.node.Name]; !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") ||
				len(refused) > 1 {
				t.Errorf("refused %v, want %q", refused, tt.want)
			}
			after := n.committer.Values()
			for key, value := range before {
				if tt.block { // the node is still a peer
					value = withNode(value, tt.node)
				}
				if fmt.Sprint(after[key]) != fmt.Sprint(value) {
					t.Errorf("%s is %v, was %v", key, after[key], value)
				}
			}
			if tunnel := after[wire.InterfaceKey("weft-vx-default-3")]; (tunnel != nil) != tt.block {
				t.Errorf("tunnel to it: %v", tunnel)
			}
			if again := n.restarted(t); list(t, again.committer.Values()) != list(t, after) {
				t.Errorf("a restart is another:\n%s", list(t, again.committer.Values()))
			}
		})
	}
}

func TestFirstNodeWinsAConflict(t *testing.T) {
	early := other(9, "10.2.2.0/26")
	late := other(3, "10.2.2.0/26")
	late.ID = 9
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
	n.join(t, self(), early)
	before := list(t, n.committer.Values())
	for range 2 {
		if refused := n.join(t, self(), late, early); refused["node3"] != "its ID 9 is already used by node node9" ||
			len(refused) != 1 {
			t.Errorf("refused %v", refused)
		}
		if after := list(t, n.committer.Values()); after != before {
			t.Errorf("values\n%s\nwere\n%s", after, before)
		}
		n = n.restarted(t)
	}
	if refused := n.join(t, self(), late, late); refused["node3"] != "it is given twice" {
		t.Errorf("refused %v", refused)
	}
	if refused := n.join(t, self(), late); len(refused) > 0 {
		t.Errorf("the other node is gone, refused %v", refused)
	}
}

func TestErrorNamesThisNodeWhenItReachesNoOtherNode(t *testing.T) {
	tests := []struct {
		name   string
		config ipnet.Config
		self   pod.Node
		want   string
	}{
		{
			"no ID", meshed(networks.TunnelVXLAN4, four), pod.Node{Name: "self", Addresses: addrs("192.0.2.1")},
			"has no ID yet",
		},
		{
			"a high ID", meshed(networks.TunnelVXLAN4, four),
			pod.Node{ID: 70000, Name: "self", Addresses: addrs("192.0.2.1")}, "70000 is above",
		},
		{
			"no address", meshed(networks.TunnelVXLAN6, four),
			pod.Node{ID: 1, Name: "self", Addresses: addrs("192.0.2.1")}, "that vxlan6 needs",
		},
		{
			"no uplink", ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}}, self(),
			"neither tunnels nor an uplink",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := nodeOf(t, tt.config).run(t)
			before := list(t, n.committer.Values())
			refused := n.join(t, tt.self, other(2, "10.2.2.0/26"))
			if !strings.Contains(refused["self"], tt.want) || len(refused) != 1 {
				t.Errorf("refused %v, want %q", refused, tt.want)
			}
			if after := list(t, n.committer.Values()); after != before {
				t.Errorf("values\n%s\nwere\n%s", after, before)
			}
		})
	}
}

func TestNewAddressOfThisNodeChangesAllItsTunnels(t *testing.T) {
	moved := self()
	renumbered := self()
	moved.Addresses = addrs("192.0.2.77")
	renumbered.ID = 7
	for name, is := range map[string]pod.Node{"another address": moved, "another ID": renumbered} {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
			n.join(t, self(), other(2, "10.2.2.0/26"), other(3, "10.2.3.0/26"))
			n.join(t, is, other(2, "10.2.2.0/26"), other(3, "10.2.3.0/26"))
			fresh := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
			fresh.join(t, is, other(2, "10.2.2.0/26"), other(3, "10.2.3.0/26"))
			if got, want := list(t, n.committer.Values()), list(t, fresh.committer.Values()); got != want {
				t.Errorf("values\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The longest network name and the highest ID have valid and unique names.
func TestNamesInTheMeshFit(t *testing.T) {
	long := strings.Repeat("n", 62) + "a"
	longer := strings.Repeat("n", 62) + "b"
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
	n.set(t, vni(custom(long, pod.L3, "10.5.0.0/24"), 500), vni(custom(longer, pod.L2), 600))
	last := with(other(200, "10.2.2.0/26"), long, "10.5.0.64/26")
	last.ID = 65535
	if refused := n.join(t, self(), last); len(refused) > 0 {
		t.Fatal(refused)
	}
	tunnels := 0
	for key, value := range n.committer.Values() {
		switch v := value.(type) {
		case wire.Interface:
			if name := strings.TrimPrefix(key, "vpp.interface/"); len(name) > 48 {
				t.Errorf("interface %s has %d bytes", name, len(name))
			}
			if v.Type == wire.TypeVXLAN {
				tunnels++
			}
		case wire.BridgeDomain:
			if len(v.Label) > 58 {
				t.Errorf("bridge domain %s has %d bytes", v.Label, len(v.Label))
			}
		}
	}
	if tunnels != 3 {
		t.Errorf("%d tunnels, want one a network", tunnels)
	}
}
