package ipnet_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// external returns an external interface.
func external(name, network, link string, addresses ...string) pod.External {
	e := pod.External{Name: name, Node: "self", Network: network, Interface: link}
	for _, a := range addresses {
		e.Addresses = append(e.Addresses, netip.MustParsePrefix(a))
	}
	return e
}

func inVLAN(id int, e pod.External) pod.External {
	e.VLAN = id
	return e
}

// open sets the external interfaces, and returns the refused ones with reasons.
func (n *node) open(t rapid.TB, externals ...pod.External) map[string]string {
	t.Helper()
	ev := &pod.SetExternals{Externals: externals, From: "test"}
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return ev.Refused
}

// outsideNode makes a node with a bridged and a routed network, and one pod on both.
func outsideNode(t *testing.T) *node {
	t.Helper()
	n := nodeOf(t, ipnet.Config{
		Networks: networks.Config{Pools: []netaddr.Pool{four, six}},
		Mesh:     mesh.Config{Uplink: "eth9", HostLink: "host0"},
	}).run(t)
	if refused := n.set(t, custom("blue", pod.L2), custom("red", pod.L3, "10.6.0.0/24", "2001:db8:6::/64")); len(
		refused) > 0 {
		t.Fatal(refused)
	}
	n.add(t, asking("a", "b1/tap/blue,r1/tap/red", ""))
	return n
}

func TestValuesOfAnExternalInterface(t *testing.T) {
	for name, e := range map[string]pod.External{
		"external-L2":      external("out", "blue", "eth1"),
		"external-L2-vlan": inVLAN(5, external("out", "blue", "eth1")),
		"external-L3":      external("out", "red", "eth1", "192.0.2.1/24", "2001:db8:2::1/64"),
		"external-L3-vlan": inVLAN(5, external("out", "red", "eth1", "192.0.2.1/24")),
		"external-default": external("out", "default", "eth1", "192.0.2.1/24", "2001:db8:2::1/64"),
	} {
		t.Run(name, func(t *testing.T) {
			n := outsideNode(t)
			before := n.committer.Values()
			if refused := n.open(t, e); len(refused) > 0 {
				t.Fatal(refused)
			}
			after := n.committer.Values()
			golden(t, name, list(t, without(after, before)))
			changes := len(n.committer.Changes())
			n.open(t, e)
			if keys := n.keysSince(changes); len(keys) > 0 {
				t.Errorf("the same interfaces changed %v", keys)
			}
			again := n.restarted(t)
			if got, want := list(t, again.committer.Values()), list(t, after); got != want {
				t.Errorf("after a restart without an API server\n%s\nwant\n%s", got, want)
			}
			if refused := again.open(t); len(refused) > 0 {
				t.Error(refused)
			}
			if got, want := list(t, again.committer.Values()), list(t, before); got != want {
				t.Errorf("without the interface\n%s\nwant\n%s", got, want)
			}
			if kept := again.saver.Bucket("externals"); len(kept) > 0 {
				t.Errorf("still kept: %v", kept)
			}
		})
	}
}

func TestPodAddedAfterAnExternalInterfaceUsesIt(t *testing.T) {
	early := outsideNode(t)
	late := outsideNode(t)
	red := external("out", "red", "eth1", "192.0.2.1/24", "2001:db8:2::1/64")
	b := asking("b", "r1/tap/red", "")
	early.open(t, red)
	early.add(t, b)
	late.add(t, asking("b", "r1/tap/red", ""))
	late.open(t, red)
	if got, want := list(t, late.committer.Values()), list(t, early.committer.Values()); got != want {
		t.Errorf("interface added after the pod:\n%s\nwant the same as for a pod added after the interface\n%s", got,
			want)
	}
	early.delete(t, b)
	for key := range early.committer.Values() {
		if strings.Contains(key, "c0ffee-b") {
			t.Errorf("%s exists without its pod", key)
		}
	}
}

func TestInvalidExternalInterfacesDoNotAffectOthers(t *testing.T) {
	out := external("out", "red", "eth1", "192.0.2.1/24")
	trunk := inVLAN(7, external("trunk", "blue", "eth2"))
	for _, tt := range []struct {
		name string
		e    pod.External
		want string
	}{
		{"an unknown network", external("x", "green", "eth3"), `there is no network "green" on this node yet`},
		{"the network stub", external("x", "stub", "eth3"), "the network stub is attached to nothing"},
		{"no name", external("x", "blue", ""), `"" is not the name of a link`},
		{"an invalid link name", external("x", "blue", "eth3.with.a.long.name"), "is not the name of a link"},
		{"the node's link to the dataplane", external("x", "blue", "host0"), "interface host0 is Weft's own"},
		{"a link of Weft's", external("x", "blue", "weft0123456789a"), "interface weft0123456789a is Weft's own"},
		{"the uplink", external("x", "blue", "eth9"), "interface eth9 is the node's uplink"},
		{"a VLAN of the uplink", inVLAN(3, external("x", "blue", "eth9")), ""},
		{"an invalid VLAN", inVLAN(4095, external("x", "blue", "eth3")), "VLAN 4095 is not within 1 and 4094"},
		{
			"an interface in use", external("x", "red", "eth1", "198.51.100.1/24"),
			"interface eth1 is already used by external interface out",
		},
		{
			"a VLAN in use", inVLAN(7, external("x", "blue", "eth2")),
			"VLAN 7 of interface eth2 is already used by external interface trunk",
		},
		{"another VLAN", inVLAN(8, external("x", "blue", "eth2")), ""},
		{
			"all frames of a trunk", external("x", "blue", "eth2"),
			"on a bridged network, external interfaces share a card only by VLANs",
		},
		{"a VLAN beside a routed network's interface", inVLAN(8, external("x", "blue", "eth1")), ""},
		{"addresses on a bridged network", external("x", "blue", "eth3", "198.51.100.1/24"), "network blue is bridged"},
		{
			"no address on a routed network", external("x", "red", "eth3"),
			"network red is routed: the interface needs an address",
		},
		{
			"addresses of its pods", external("x", "red", "eth3", "10.6.0.250/30"),
			"10.6.0.250/30 overlaps 10.6.0.0/24, addresses of pods",
		},
		{
			"addresses around its pods'", external("x", "red", "eth3", "10.6.1.1/8"),
			"10.6.1.1/8 overlaps 10.6.0.0/24, addresses of pods",
		},
		{
			"addresses of pods of network default", external("x", "default", "eth3", "10.1.0.3/28"),
			"overlaps 10.1.0.0/28, addresses of pods",
		},
		{
			"addresses of another node's pods", external("x", "default", "eth3", "10.2.2.1/28"),
			"overlaps 10.2.2.0/26, addresses of pods",
		},
		{"the pool of another network", external("x", "red", "eth3", "10.1.0.3/28"), ""},
		{
			"addresses of another interface", external("x", "red", "eth3", "192.0.2.9/25"),
			"192.0.2.9/25 overlaps 192.0.2.0/24, those of external interface out",
		},
		{"the same on another network", external("x", "default", "eth3", "192.0.2.9/25"), ""},
		{
			"two addresses of a family", external("x", "red", "eth3", "198.51.100.1/24", "198.51.100.2/24"),
			"another address of its own",
		},
		{
			"a link-local address", external("x", "red", "eth3", "fe80::7/64"),
			"fe80::7/64 is not an address that other machines can reach",
		},
		{"the network default", external("x", "default", "eth3", "198.51.100.1/24"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := outsideNode(t)
			n.join(t, self(), other(2, "10.2.2.0/26"))
			n.open(t, out, trunk)
			before := n.committer.Values()
			refused := n.open(t, tt.e, trunk, out)
			if got := refused["x"]; !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") ||
				len(refused) > 1 {
				t.Errorf("refused %v, want %q", refused, tt.want)
			}
			after := n.committer.Values()
			for key, value := range before {
				if fmt.Sprint(after[key]) != fmt.Sprint(value) {
					t.Errorf("%s is %v, was %v", key, after[key], value)
				}
			}
			if tt.want != "" && len(after) != len(before) {
				t.Errorf("the refused interface made\n%s", list(t, without(after, before)))
			}
		})
	}
}

func TestMissingFamilyIsReported(t *testing.T) {
	n := nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}}).run(t)
	if refused := n.open(t,
		external("x", "default", "eth3", "2001:db8:2::1/64")); refused["x"] != "network default has no ip6" {
		t.Errorf("refused %v", refused)
	}
}

func TestDuplicateExternalInterfaceIsRefused(t *testing.T) {
	n := outsideNode(t)
	before := list(t, n.committer.Values())
	if refused := n.open(t, external("x", "blue", "eth1"),
		external("x", "blue", "eth2")); refused["x"] != "it is given twice" {
		t.Errorf("refused %v", refused)
	}
	if after := list(t, n.committer.Values()); after != before {
		t.Errorf("values\n%s\nwere\n%s", after, before)
	}
}

func TestExternalInterfaceFollowsItsNetwork(t *testing.T) {
	n := nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}}).run(t)
	bare := list(t, n.committer.Values())
	out := external("out", "red", "eth1", "192.0.2.1/24")
	if refused := n.open(t, out); !strings.Contains(refused["out"], "no network") {
		t.Fatalf("refused %v", refused)
	}
	n.set(t, custom("red", pod.L3, "10.6.0.0/24"))
	if refused := n.open(t, out); len(refused) > 0 {
		t.Fatal(refused)
	}
	connected := list(t, n.committer.Values())
	for name, networks := range map[string][]pod.Network{
		"the network is deleted": {}, "it becomes bridged": {custom("red", pod.L2)},
		"its pods get overlapping addresses": {custom("red", pod.L3, "192.0.0.0/16")},
	} {
		n.set(t, networks...)
		if keys := n.Externals.Objects("out"); len(keys) > 0 || len(n.saver.Bucket("externals")) > 0 {
			t.Errorf("%s: it is still connected with %v", name, keys)
		}
		if len(networks) == 0 && list(t, n.committer.Values()) != bare {
			t.Errorf("%s: left behind\n%s", name, list(t, n.committer.Values()))
		}
		n.set(t, custom("red", pod.L3, "10.6.0.0/24"))
		n.open(t, out)
		if again := list(t, n.committer.Values()); len(n.Externals.Objects("out")) == 0 ||
			len(again) != len(connected) {
			t.Errorf("%s, and is undone: values\n%s\nwant\n%s", name, again, connected)
		}
	}
}

func TestNamesOfExternalInterfacesFit(t *testing.T) {
	n := outsideNode(t)
	long := strings.Repeat("e", 252)
	if refused := n.open(t, inVLAN(1, external(long+"a", "blue", "eth1")),
		inVLAN(2, external(long+"b", "blue", "eth1"))); len(refused) > 0 {
		t.Fatal(refused)
	}
	objects := make(map[string]bool)
	for key := range n.committer.Values() {
		name, is := strings.CutPrefix(key, "vpp.interface/")
		if !is || !desired.IsExternal(name) {
			continue
		}
		if objects[name] = true; len(name) > 48 {
			t.Errorf("interface %s has %d bytes", name, len(name))
		}
	}
	if len(objects) != 2 {
		t.Errorf("interfaces %v, want two", objects)
	}
}

// chosen returns the existing elements with these indexes.
func chosen[T any](of []T, which []int) (some []T) {
	for _, i := range which {
		if i < len(of) {
			some = append(some, of[i])
		}
	}
	return some
}

// Networks, pods and interfaces change in any order; the result equals that of a new node with the final state.
func TestExternalsDoNotDependOnTheOrderOfChanges(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four, six}}}).run(t)
		networks := []pod.Network{
			custom("blue", pod.L2), custom("red", pod.L3, "10.6.0.0/24"), custom("pink", pod.L3, "2001:db8:6::/64"),
		}
		all := []pod.External{
			external("a", "blue", "eth1"), inVLAN(3, external("b", "red", "eth2", "192.0.2.1/24")),
			inVLAN(4, external("c", "pink", "eth2", "2001:db8:2::1/64")),
			external("d", "default", "eth3", "192.0.2.1/24"),
			inVLAN(9, external("e", "red", "eth3", "198.51.100.1/24")),
		}
		some := rapid.SliceOfDistinct(rapid.IntRange(0, len(all)-1), rapid.ID[int])
		var set []pod.Network
		var open []pod.External
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			which := some.Draw(r, "which")
			if rapid.Bool().Draw(r, "networks") {
				set = chosen(networks, which)
				n.set(r, set...)
			} else {
				open = chosen(all, which)
				n.open(r, open...)
			}
		}
		n.open(r, open...)
		refused := n.open(r, open...)
		fresh := nodeOf(t, n.config).run(t)
		fresh.set(r, set...)
		again := fresh.open(r, open...)
		if fmt.Sprint(refused) != fmt.Sprint(again) || len(n.Externals.All()) != len(fresh.Externals.All()) {
			r.Errorf("refused %v, by a new node %v", refused, again)
		}
		for _, e := range fresh.Externals.All() {
			if fmt.Sprint(n.Externals.Objects(e.Name)) != fmt.Sprint(fresh.Externals.Objects(e.Name)) {
				r.Errorf("%s has %v, on a new node %v", e.Name, n.Externals.Objects(e.Name),
					fresh.Externals.Objects(e.Name))
			}
		}
	})
}
