package ipnet_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// vlansOf parses a list of VLANs.
func vlansOf(t testing.TB, list ...string) netaddr.VLANs {
	t.Helper()
	v, err := netaddr.ParseVLANs(list)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// trunkOn is an external interface with VLANs of network lab.
func trunkOn(t testing.TB, name, card string, list ...string) pod.External {
	t.Helper()
	e := external(name, "lab", card)
	e.VLANs = vlansOf(t, list...)
	return e
}

// withNative and withOuter change a trunk.
func withNative(vlan int, e pod.External) pod.External { e.Native = &vlan; return e }
func withOuter(vlan int, e pod.External) pod.External  { e.Outer = vlan; return e }

// lab is a bridged network with VLANs 100 to 102 and 300.
func lab(t testing.TB) pod.Network {
	t.Helper()
	n := custom("lab", pod.L2)
	n.VLANs = vlansOf(t, "100-102", "300")
	n.VNI = 7
	return n
}

// trunkNode makes a node with network lab.
func trunkNode(t *testing.T) *node {
	t.Helper()
	n := outsideNode(t)
	if refused := n.set(t, custom("blue", pod.L2), lab(t),
		custom("red", pod.L3, "10.6.0.0/24", "2001:db8:6::/64")); len(refused) > 0 {
		t.Fatal(refused)
	}
	return n
}

func TestValuesOfATrunk(t *testing.T) {
	for name, e := range map[string]pod.External{
		"trunk":        trunkOn(t, "out", "eth1", "100-101"),
		"trunk-native": withNative(0, trunkOn(t, "out", "eth1", "100")),
		"trunk-vlan":   withNative(300, trunkOn(t, "out", "eth1", "100")),
		"trunk-qinq":   withOuter(500, trunkOn(t, "out", "eth1", "100")),
		"trunk-whole":  external("out", "lab", "eth1"),
	} {
		t.Run(name, func(t *testing.T) {
			n := trunkNode(t)
			before := n.committer.Values()
			if refused := n.open(t, e); len(refused) > 0 {
				t.Fatal(refused)
			}
			after := n.committer.Values()
			golden(t, name, list(t, without(after, before)))
			n.open(t)
			if left := list(t, without(n.committer.Values(), before)); left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// A card has room for the longest frames of all its trunks, whichever is the last one.
func TestTwoTrunksOfACardShareItsRoom(t *testing.T) {
	for name, trunks := range map[string][]pod.External{
		"the longer one first": {withOuter(500, trunkOn(t, "a", "eth1", "100")), trunkOn(t, "b", "eth1", "101")},
		"the longer one last":  {trunkOn(t, "a", "eth1", "101"), withOuter(500, trunkOn(t, "b", "eth1", "100"))},
	} {
		n := trunkNode(t)
		if refused := n.open(t, trunks...); len(refused) > 0 {
			t.Fatal(name, refused)
		}
		var rooms []int
		for _, value := range n.committer.Values() {
			if link, is := value.(wire.Link); is && link.Room > 0 {
				rooms = append(rooms, link.Room)
			}
		}
		if want := 1500 + 8; !slices.Equal(rooms, []int{want}) {
			t.Errorf("%s: cards with room for %v bytes, want %d", name, rooms, want)
		}
	}
}

func TestInvalidTrunksAreRefused(t *testing.T) {
	out := withNative(0, trunkOn(t, "out", "eth1", "100-101"))
	pair := withOuter(500, trunkOn(t, "pair", "eth2", "100"))
	single := inVLAN(7, external("single", "blue", "eth2"))
	other := trunkOn(t, "x", "eth3", "100")
	other.Network = "blue"
	routed := trunkOn(t, "x", "eth3", "100")
	routed.Network = "red"
	addressed := trunkOn(t, "x", "eth3", "100")
	addressed.Addresses = external("x", "red", "eth3", "198.51.100.1/24").Addresses
	both := inVLAN(5, trunkOn(t, "x", "eth3", "100"))
	for _, tt := range []struct {
		name string
		e    pod.External
		want string
	}{
		{"other VLANs of the card", trunkOn(t, "x", "eth1", "102"), ""},
		{"a VLAN of another trunk", trunkOn(t, "x", "eth1", "101-102"),
			"VLAN 101 of interface eth1 is already used by external interface out"},
		{"untagged frames of another trunk", withNative(300, trunkOn(t, "x", "eth1", "102")),
			"untagged frames of interface eth1 already belong to external interface out"},
		{"the pair of another trunk", withOuter(500, trunkOn(t, "x", "eth2", "100")),
			"VLAN 100 in outer VLAN 500 of interface eth2 is already used by external interface pair"},
		{"another outer tag", withOuter(501, trunkOn(t, "x", "eth2", "100")), ""},
		{"no outer tag", trunkOn(t, "x", "eth2", "100"), ""},
		{"a single VLAN beside a trunk", inVLAN(102, external("x", "blue", "eth1")), ""},
		{"a single VLAN of a trunk", inVLAN(100, external("x", "blue", "eth1")),
			"VLAN 100 of interface eth1 is already used by external interface out"},
		{"a whole card with a trunk", external("x", "blue", "eth1"),
			"interface eth1 is already used by external interface out"},
		{"the uplink", trunkOn(t, "x", "eth9", "100"), "interface eth9 is the node's uplink: vlans need a card of their own"},
		{"a VLAN that the network lacks", trunkOn(t, "x", "eth3", "100-103"),
			"network lab has no VLAN 103: its vlans are 100-102, 300"},
		{
			"a native VLAN that the network lacks", withNative(5, trunkOn(t, "x", "eth3", "100")),
			"network lab has no VLAN 5",
		},
		{"a network without VLANs", other, "network blue has no vlans"},
		{"a routed network", routed, "network red has no vlans"},
		{"addresses", addressed, "ips: an interface with vlans has no addresses"},
		{"a single VLAN and a list", both, "vlan and vlans exclude each other"},
		{"a native VLAN in the list", withNative(100, trunkOn(t, "x", "eth3", "100")), "nativeVLAN is in vlans, too"},
		{"an outer tag of untagged frames", withOuter(5, withNative(0, trunkOn(t, "x", "eth3", "100"))),
			"nativeVLAN and outerVLAN exclude each other"},
		{
			"an outer tag without a list", withOuter(5, external("x", "lab", "eth3")),
			"nativeVLAN and outerVLAN need vlans",
		},
		{
			"an outer tag that is no VLAN", withOuter(4095, trunkOn(t, "x", "eth3", "100")),
			"outerVLAN 4095 is not within",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := trunkNode(t)
			n.open(t, out, pair, single)
			before := n.committer.Values()
			refused := n.open(t, tt.e, out, pair, single)
			if got := refused["x"]; !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") || len(refused) > 1 {
				t.Errorf("refused %v, want %q", refused, tt.want)
			}
			n.open(t, out, pair, single)
			if got, want := list(t, n.committer.Values()), list(t, before); got != want {
				t.Errorf("after its end:\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestValuesOfAPodWithATrunk(t *testing.T) {
	for name, options := range map[string]string{
		"trunk-pod":   `{"t1": {"vlans": ["100-101", 300]}}`,
		"trunk-plain": "",
	} {
		t.Run(name, func(t *testing.T) {
			n := trunkNode(t)
			before := n.committer.Values()
			p := asking("b", "t1/tap/lab", options)
			n.add(t, p)
			golden(t, name, list(t, without(n.committer.Values(), before)))
			n.delete(t, p)
			if left := list(t, without(n.committer.Values(), before)); left != "" {
				t.Errorf("left behind:\n%s", left)
			}
		})
	}
}

// A VLAN that the network loses disconnects the pod from it, and returns with it.
func TestPodsFollowTheVLANsOfTheirNetwork(t *testing.T) {
	n := trunkNode(t)
	n.add(t, asking("b", "t1/tap/lab", `{"t1": {"vlans": ["100-101"]}}`))
	before := list(t, n.committer.Values())
	less := lab(t)
	less.VLANs = vlansOf(t, "100")
	red := custom("red", pod.L3, "10.6.0.0/24", "2001:db8:6::/64")
	n.set(t, custom("blue", pod.L2), less, red)
	for key := range n.committer.Values() {
		if strings.Contains(key, ":101") || strings.Contains(key, "lab.101") {
			t.Errorf("%s is there without VLAN 101", key)
		}
	}
	n.set(t, custom("blue", pod.L2), lab(t), red)
	if got := list(t, n.committer.Values()); got != before {
		t.Errorf("after the return of the VLAN:\n%s\nwant\n%s", got, before)
	}
}

func TestVLANsOfNetworksHaveVNIsOfTheirOwn(t *testing.T) {
	const lastAssigned = 1<<20 + 11<<8 - 1
	seen := map[uint32]bool{}
	for _, vni := range []uint32{1, 2, 254, 255, 1 << 20, 1<<20 + 1, lastAssigned - 1, lastAssigned} {
		seen[vni] = true
	}
	for vni := range maps.Clone(seen) {
		for _, vlan := range []int{1, 2, 4093, 4094} {
			v, ok := pod.VNIOfVLAN(vni, vlan)
			if !ok || seen[v] || v >= 1<<24 || v >= 1<<20 && v <= lastAssigned {
				t.Errorf("VLAN %d of VNI %d has VNI %d, %t", vlan, vni, v, ok)
			}
			seen[v] = true
		}
	}
	for _, vni := range []uint32{0, 256, 1<<20 - 1, lastAssigned + 1, 1<<24 - 1} {
		if v, ok := pod.VNIOfVLAN(vni, 1); ok {
			t.Errorf("VNI %d has VNI %d for a VLAN", vni, v)
		}
	}
}

func TestVNIsOfVLANsAreNotShared(t *testing.T) {
	n := outsideNode(t)
	blue := custom("blue", pod.L2)
	red := custom("red", pod.L3, "10.6.0.0/24", "2001:db8:6::/64")
	taken := custom("green", pod.L2)
	taken.VNI = 7<<12 + 100
	refused := n.set(t, blue, red, lab(t), taken)
	if why := refused["green"] + refused["lab"]; !strings.Contains(why, "is already used by network") {
		t.Errorf("refused %v", refused)
	}
	taken.VNI += 3 // of VLAN 103, which lab does not have
	if refused := n.set(t, blue, red, lab(t), taken); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
}

// Each VLAN has a tunnel of its own to each node, with its VNI, and frames have no tags there.
func TestVLANsSpanNodes(t *testing.T) {
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, four)).run(t)
	n.set(t, lab(t))
	n.join(t, self(), other(2, "10.1.2.0/26"))
	values := n.committer.Values()
	for label, vni := range map[string]uint32{"lab": 7, "lab.100": 7<<12 + 100, "lab.300": 7<<12 + 300} {
		tunnel, is := values["vpp.interface/weft-vx-"+label+"-2"].(wire.Interface)
		member, joins := values["vpp.bd-member/weft-vx-"+label+"-2"].(wire.BridgeMember)
		if !is || !joins || tunnel.VXLAN.VNI != vni || member.BridgeDomain != "weft:"+label || member.SplitHorizonGroup != 1 {
			t.Errorf("tunnel of %s: %+v, %+v", label, tunnel, member)
		}
		if domain, is := values["vpp.bridge-domain/weft:"+label].(wire.BridgeDomain); !is || !domain.Learn || !domain.Flood {
			t.Errorf("bridge domain of %s: %+v", label, domain)
		}
	}
	if nat, is := values["linux.tunnel-nat/tunnels"].(wire.TunnelNAT); is && !slices.Contains(nat.VNIs, 7<<12+300) {
		t.Errorf("VNIs of the tunnels: %v", nat.VNIs)
	}
}

// Policies of the interface apply to each of its VLANs, and anti-spoofing limits the MAC there. A VLAN is joined only
// behind both.
func TestVLANsOfAPodArePolicedAndAntiSpoofed(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	spoofed := lab(t)
	spoofed.CIDRs = custom("lab", pod.L2, "10.7.0.0/24").CIDRs
	spoofed.AntiSpoof = true
	n.set(t, spoofed)
	r.set("b", listsFrom("x", "10.1.0.9/32"), "t1")
	n.add(t, asking("b", "t1/tap/lab", `{"t1": {"vlans": [100]}}`))
	values := n.committer.Values()
	checked := 0
	for key, v := range values {
		member, is := v.(wire.BridgeMember)
		if !is || !strings.HasSuffix(key, "-t1:100") {
			continue
		}
		checked++
		rules, _ := values["vpp.macip-acl/"+member.Interface].(wire.MACIP)
		lists, _ := values["vpp.interface-acl/"+member.Interface].(wire.InterfaceACL)
		if text := fmt.Sprint(lists); strings.Contains(text, "guarded") {
			t.Errorf("pods may be routers in a VLAN, but it has the ACLs %s", text)
		}
		if !member.AntiSpoofed || !member.Filtered || len(rules.Rules) == 0 || len(lists.Input)+len(lists.Output) == 0 {
			t.Errorf("%+v with %+v and %+v", member, rules, lists)
		}
		for _, rule := range rules.Rules {
			if rule.MAC.IsZero() {
				t.Errorf("rule %+v of a VLAN", rule)
			}
		}
	}
	if checked != 1 {
		t.Errorf("%d members for VLAN 100", checked)
	}
}
