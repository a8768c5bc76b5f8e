package ipnet_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// Nodes, blocks, networks and pods change in any order, and the agent restarts. After each event a resync equals the
// updates (the loop verifies), a restart finds the same, each tunnel has what it needs and no two have the same
// endpoint; a new node with the final state has the same values.
func TestMeshIsConsistentAfterAnyChanges(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		config := inCluster(cluster4, cluster6)
		config.Networks.Tunnel = rapid.SampledFrom([]string{
			networks.TunnelVXLAN4, networks.TunnelVXLAN6, networks.TunnelNone,
		}).Draw(r, "tunnel")
		config.Mesh.Uplink = "eth9"
		n := nodeOf(t, config).run(t)
		me := self()
		var nodes []pod.Node
		r.Repeat(map[string]func(*rapid.T){
			"nodes": func(r *rapid.T) {
				if rapid.Bool().Draw(r, "other nodes") {
					nodes = anyNodes(r)
				}
				me.ID = rapid.SampledFrom([]uint32{0, 1, 1, 1, 2}).Draw(r, "own ID")
				me.Parts = with(pod.Node{}, "default",
					rapid.SampledFrom([]string{"10.1.1.0/30", "10.1.8.7/32"}).Draw(r, "own block")).Parts
				me.ClientRanges = anyClientRanges(r)
				n.join(r, me, nodes...)
			},
			"networks": func(r *rapid.T) {
				n.set(r, anyNetworks(r)...)
			},
			"blocks": func(r *rapid.T) {
				n.give(r, anyBlocks(r)...)
			},
			"pod": func(r *rapid.T) {
				ev := sandbox(rapid.SampledFrom([]string{"p", "qq", "rrr"}).Draw(r, "pod"))
				if rapid.Bool().Draw(r, "delete") {
					n.delete(r, ev)
					n.now = n.now.Add(coolDown)
					return
				}
				_, _ = n.loop.Do(t.Context(), ev) // an address may be missing
			},
			"restart": func(r *rapid.T) {
				before := list(r, n.committer.Values())
				n = n.restarted(t)
				if after := list(r, n.committer.Values()); after != before {
					r.Fatalf("restarted: -before +after\n%s", cmp.Diff(before, after))
				}
			},
			"": func(r *rapid.T) { checkTunnels(r, n.committer.Values()) },
		})
		n.join(r, me) // otherwise the first nodes would win conflicts
		n.join(r, me, nodes...)
		fresh := nodeOf(t, config)
		fresh.Restore(ipnet.Saved{
			Blocks:   n.kept().Blocks,
			Networks: n.kept().Networks,
			Saved:    attach.Saved{Attachments: n.kept().Attachments},
		})
		fresh.run(t).join(r, me, nodes...)
		if got, want := list(r, n.committer.Values()), list(r, fresh.committer.Values()); got != want {
			r.Fatalf("-fresh +updated\n%s", cmp.Diff(want, got))
		}
	})
}

func anyNetworks(r *rapid.T) []pod.Network {
	var networks []pod.Network
	for i, name := range []string{"a", "b"} {
		if rapid.Bool().Draw(r, name) {
			w := custom(name, rapid.SampledFrom([]pod.NetworkType{pod.L2, pod.L3}).Draw(r, "type"), "10.5.0.0/24")
			networks = append(networks, vni(w, rapid.SampledFrom([]uint32{0, 500 + uint32(i)}).Draw(r, "vni")))
		}
	}
	return networks
}

func anyBlocks(r *rapid.T) []netaddr.Block {
	var blocks []netaddr.Block
	for _, b := range []netaddr.Block{
		block("", "10.1.1.0/30"), block("", "10.1.2.0/30"), block("", "2001:db8:1::40/126"), block("a", "10.5.0.8/30"),
	} {
		if rapid.Bool().Draw(r, b.Prefix.String()) {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func anyNodes(r *rapid.T) []pod.Node {
	var nodes []pod.Node
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		if !rapid.Bool().Draw(r, name) {
			continue
		}
		n := pod.Node{Name: name, ID: rapid.Uint32Range(0, 5).Draw(r, "ID")}
		for _, a := range addrs("192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8:ff::2", "2001:db8:ff::3") {
			if rapid.Bool().Draw(r, "has "+a.String()) &&
				!slices.ContainsFunc(n.Addresses, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) {
				n.Addresses = append(n.Addresses, a)
			}
		}
		n.ClientRanges = anyClientRanges(r)
		for _, b := range []string{
			"10.1.8.0/26", "10.1.8.0/24", "10.1.8.5/32", "10.1.9.0/26", "10.2.0.0/26", "2001:db8:1::c0/122",
			"10.1.0.0/16",
		} {
			if rapid.IntRange(0, 3).Draw(r, b) == 0 {
				n = with(n, "default", b)
			}
		}
		if rapid.Bool().Draw(r, "part of a") {
			n = with(n, "a",
				rapid.SampledFrom([]string{"10.5.0.64/26", "10.5.0.128/26", "10.5.0.0/24"}).Draw(r, "block of a"))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func anyClientRanges(r *rapid.T) []netip.Prefix {
	return rapid.SampledFrom([][]netip.Prefix{
		nil, clientRanges, clientRanges[:1], prefixes("100.64.0.0/12", "fc00::/8"),
	}).Draw(r, "client ranges")
}

// checkTunnels fails unless tunnels differ, their bridge domains exist, and routes into them have a neighbour with an
// L2 FIB entry.
func checkTunnels(r *rapid.T, values map[string]any) {
	ends := make(map[wire.VXLAN]string)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch v := values[key].(type) {
		case wire.Interface:
			if v.Type != wire.TypeVXLAN {
				continue
			}
			if other := ends[v.VXLAN]; other != "" {
				r.Fatalf("%s and %s have the same endpoints: %+v", other, key, v.VXLAN)
			}
			ends[v.VXLAN] = key
		case wire.BridgeMember:
			if values[wire.BridgeDomainKey(v.BridgeDomain)] == nil || values[wire.InterfaceKey(v.Interface)] == nil {
				r.Fatalf("%s: %+v, which does not exist", key, v)
			}
		case wire.Route:
			hop := v.Paths[0]
			if !hop.NextHop.IsValid() {
				continue
			}
			neighbour, known := values[wire.NeighbourKey(hop.Interface, hop.NextHop)].(wire.Neighbour)
			if !known {
				r.Fatalf("%s has next hop %v, which is not a neighbour", key, hop)
			}
			member, bridged := values[wire.BridgeMemberKey(hop.Interface)].(wire.BridgeMember)
			if bridged && values[wire.L2FIBKey(member.BridgeDomain, neighbour.MAC)] == nil {
				r.Fatalf("%s has next hop %s, which is behind no tunnel", key, neighbour.MAC)
			}
		}
	}
	names := make(map[uint32]string)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if d, ok := values[key].(wire.BridgeDomain); ok {
			if other := names[d.ID]; other != "" {
				r.Fatalf("%s and %s have number %d", other, key, d.ID)
			}
			names[d.ID] = fmt.Sprint(key)
		}
	}
}
