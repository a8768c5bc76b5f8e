package ipnet_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// summary describes a pod's interfaces, one per line.
func summary(a *pod.Attachment) string {
	var lines []string
	for _, i := range a.Interfaces {
		lines = append(lines, fmt.Sprint(i.Name, " ", i.Type, " ", i.Network, " ", i.MTU, " ", i.Addresses, i.Pools))
	}
	return strings.Join(lines, "\n")
}

func TestInterfacesAreMadeInTheRequestedOrder(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.set(t, custom("blue", pod.L3, "10.5.0.0/24"), custom("red", pod.L2, "10.5.0.0/24"), custom("bare", pod.L2))
	a := n.add(t, asking("a", "z/veth/blue, y/tap, x/tap/stub, w/tap/bare",
		`{"z":{"mtu":1400,"mac":"02:00:00:00:00:07","ips":["10.5.0.9"]},"y":{"ips":["10.1.0.2"]}}`))
	want := `eth0 tap  1500 [10.1.0.3/32 2001:db8:1::3/128] [default4 default6]
z veth blue 1400 [10.5.0.9/32] [blue:ip4]
y tap  1500 [10.1.0.2/32 2001:db8:1::2/128] [default4 default6]
x tap stub 1500 [] []
w tap bare 1500 [] []`
	if got := summary(a); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if a.Interfaces[1].MAC.String() != "02:00:00:00:00:07" {
		t.Errorf("MAC %s", a.Interfaces[1].MAC)
	}
	b := n.add(t, asking("b", "q/tap/red", ""))
	if got := b.Interfaces[1].Addresses[0].String(); got != "10.5.0.2/24" {
		t.Errorf("on a network with the same addresses: %s", got)
	}
}

func TestInvalidExtraInterfaceLeavesNothingAndHasAReason(t *testing.T) {
	tests := []struct {
		name, interfaces, options string
		code                      uint
		want                      string
	}{
		{"an unknown type", "m1/vhost", "", pod.CodeInvalidAnnotation, `item "m1/vhost": the type must be`},
		{
			"an unknown network", "x1/tap,x2/tap/green", "", pod.CodeUnknownNetwork,
			`interface x2: unknown network "green"; known networks: default, stub, blue, secret`,
		},
		{
			"a network of another namespace", "x1/tap/secret", "", pod.CodeUnknownNetwork,
			`network secret does not admit pods of namespace "default"; these do: default, stub, blue`,
		},
		{
			"an MTU above the network's", "x1/tap/blue", `{"x1":{"mtu":1401}}`, pod.CodeInvalidAnnotation,
			"MTU 1401 is not within 1280 to 1400, which network blue allows",
		},
		{
			"an MTU below IPv6's minimum", "x1/tap/blue", `{"x1":{"mtu":1279}}`, pod.CodeInvalidAnnotation,
			"MTU 1279 is not within 1280 to 1400",
		},
		{
			"an MTU above the node's", "x1/tap", `{"x1":{"mtu":1501}}`, pod.CodeInvalidAnnotation,
			"1280 to 1500, which network default allows",
		},
		{
			"an address of another pod", "x1/tap/blue", `{"x1":{"ips":["10.5.0.7"]}}`, pod.CodeAddressInUse,
			"interface x1: address 10.5.0.7 is held by pod default/first on this node (weft/c0ffee-first/eth0/x1)",
		},
		{
			"the gateway's address", "x1/tap/blue", `{"x1":{"ips":["10.5.0.1"]}}`, pod.CodeAddressInUse,
			"10.5.0.1 is held by node",
		},
		{
			"an address outside of the network", "x1/tap/blue", `{"x1":{"ips":["10.1.0.5"]}}`, pod.CodeUnknownNetwork,
			"interface x1: address 10.1.0.5 is in no pool",
		},
		{
			"an address on a network without addresses", "x1/tap/stub", `{"x1":{"ips":["10.1.0.5"]}}`,
			pod.CodeUnknownNetwork, "network stub has no addresses",
		},
		{
			"another pod's MAC", "x1/tap/blue", `{"x1":{"mac":"02:00:00:00:00:07"}}`, pod.CodeAddressInUse,
			"interface x1: requested MAC 02:00:00:00:00:07 is held by pod default/first",
		},
		{
			"a duplicate MAC", "x1/tap,x2/tap", `{"x1":{"mac":"02:00:00:00:00:08"},"x2":{"mac":"02:00:00:00:00:08"}}`,
			pod.CodeAddressInUse, "interface x2: MAC 02:00:00:00:00:08 is already used by interface x1",
		},
		{
			"a network's gateway's MAC", "x1/tap", `{"x1":{"mac":"06:e2:71:a9:69:51"}}`, pod.CodeAddressInUse,
			"is the gateway's",
		},
		{
			"more queues of a tap than the node allows", "x1/tap", `{"x1":{"rxQueues":5}}`, pod.CodeInvalidAnnotation,
			"interface x1: rxQueues 5 is more than this node allows, which is 4",
		},
		{
			"more queues of a veth", "x1/veth", `{"x1":{"rxQueues":4,"txQueues":5}}`, pod.CodeInvalidAnnotation,
			"interface x1: txQueues 5 is more than this node allows, which is 4",
		},
		{
			"other queues each way of a tap", "x1/tap", `{"x1":{"rxQueues":4,"txQueues":1}}`, pod.CodeInvalidAnnotation,
			"a tap has equal numbers of both",
		},
		{
			"two ways to the same addresses", "x1/tap/blue,x2/tap/twin", "", pod.CodeInvalidAnnotation,
			"interfaces x1 (network blue) and x2 (network twin) both lead to 10.5.0.1/32",
		},
		{
			"a bridge and a way to the same addresses", "x1/tap/bridge,x2/tap/blue", "", pod.CodeInvalidAnnotation,
			"both lead to 10.5.0.0/24",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four, six).run(t)
			blue := custom("blue", pod.L3, "10.5.0.0/24", "fd00:5::/64")
			secret := custom("secret", pod.L2)
			blue.MTU = 1400
			secret.Namespaces = []string{"theirs"}
			n.set(t, blue, secret)
			if strings.Contains(tt.interfaces, "x2/tap/") && tt.code == pod.CodeInvalidAnnotation {
				n.set(t, blue, custom("twin", pod.L3, "10.5.0.0/24"), custom("bridge", pod.L2, "10.5.0.0/24"))
			}
			n.add(t, asking("first", "x1/tap/blue", `{"x1":{"ips":["10.5.0.7"],"mac":"02:00:00:00:00:07"}}`))
			err := n.refuses(t, asking("second", tt.interfaces, tt.options))
			checkRefusal(t, err, tt.code, tt.want, "add pod default/second")
		})
	}
}

func TestFailureOfTheLastInterfaceUndoesTheOthers(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.set(t, custom("blue", pod.L3, "10.5.0.0/24"), custom("tiny", pod.L2, "10.6.0.0/30"))
	n.add(t, asking("first", "x1/tap/tiny", ""))
	err := n.refuses(t, asking("second", "x1/tap/blue,x2/veth,x3/tap/tiny", ""))
	checkRefusal(t, err, pod.CodePoolExhausted,
		"interface x3: pool exhausted: all addresses of pool tiny:ip4 are held, 1 by this node; delete pods of network tiny, or give it larger cidrs")
}

func TestOnlyTheFirstOfSeveralInterfacesOnOneNetworkHasItsRoutes(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("blue", pod.L3, "10.5.0.0/24"))
	a := n.add(t, asking("a", "x1/tap/blue,x2/veth/blue", ""))
	if first, second := a.Interfaces[1], a.Interfaces[2]; len(first.Routes) != 2 || len(second.Routes) != 0 ||
		first.Addresses[0] == second.Addresses[0] {
		t.Errorf("got %+v and %+v", first, second)
	}
}

func TestAntiSpoofingFollowsTheNetwork(t *testing.T) {
	routed := custom("routed", pod.L3, "10.5.0.0/24")
	bare := custom("bare", pod.L2)
	bridged := custom("bridged", pod.L2, "10.6.0.0/24")
	open := custom("open", pod.L3, "10.7.0.0/24")
	routed.AntiSpoof = true
	bare.AntiSpoof = true
	bridged.AntiSpoof = true
	n := newNode(t, four).run(t)
	n.set(t, routed, bare, bridged, open)
	ev := asking("a",
		"r/tap/routed,n/tap/bare,b/veth/bridged,o/tap/open",
		`{"r":{"mac":"02:00:00:00:00:01"},"n":{"mac":"02:00:00:00:00:02"},"b":{"mac":"02:00:00:00:00:03"}}`)
	a := n.add(t, ev)
	want := map[string]string{
		"r": "[{02:00:00:00:00:01 10.5.0.2/32} {02:00:00:00:00:01 fe80::ff:fe00:1/128}]",
		"n": "[{02:00:00:00:00:02 0.0.0.0/0} {02:00:00:00:00:02 ::/0} {02:00:00:00:00:02 fe80::ff:fe00:2/128}]",
		"b": "[{02:00:00:00:00:03 10.6.0.2/32} {02:00:00:00:00:03 fe80::ff:fe00:3/128}]",
		"o": "",
	}
	check := func(when string) {
		for _, i := range a.Interfaces[1:] {
			got := ""
			if rules, ok := n.committer.Values()[wire.MACIPKey(i.Object)].(wire.MACIP); ok {
				got = fmt.Sprint(rules.Rules)
			}
			if got != want[i.Name] {
				t.Errorf("%s: allowed sources of %s: %s, want %s", when, i.Name, got, want[i.Name])
			}
		}
	}
	check("made")
	routed.AntiSpoof = false
	open.AntiSpoof = true
	n.set(t, routed, bare, bridged, open)
	n = n.restarted(t)
	check("after the networks changed")
}

func TestChainedModeMakesNoMainInterface(t *testing.T) {
	n := newNode(t, four, six).run(t)
	before := list(t, n.committer.Values())
	none := sandbox("none")
	none.Mode = pod.ModeChained
	if a := n.add(t, none); len(a.Interfaces) != 0 || list(t, n.committer.Values()) != before {
		t.Errorf("interfaces without a request: %v", summary(a))
	}
	ev := asking("a", "x1/tap,x2/veth", "")
	ev.Mode = pod.ModeChained
	ev.Requested.Addresses = prefixes("10.1.0.9")
	a := n.add(t, ev)
	want := "x1 tap  1500 [10.1.0.2/32 2001:db8:1::2/128] [default4 default6]\nx2 veth  1500 [10.1.0.3/32 2001:db8:1::3/128] [default4 default6]"
	if got := summary(a); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := fmt.Sprint(a.Interfaces[0].Routes, a.Interfaces[1].Routes); got !=
		"[10.1.0.1/32 10.1.0.0/28 via 10.1.0.1 2001:db8:1::/64 via fe80::1] []" {
		t.Errorf("routes %s: want routes to the pods on the first only, and no default route", got)
	}
	n = n.restarted(t)
	err := n.refuses(t, asking("b", "eth0/tap", ""))
	checkRefusal(t, err, pod.CodeInvalidAnnotation, "the name is taken")
	n.delete(t, none)
	n.delete(t, ev)
	if after := list(t, n.committer.Values()); after != before {
		t.Errorf("left\n%s, was\n%s", after, before)
	}
}

func TestSecondAttachmentOfASandboxDoesNotMakeExtraInterfacesAgain(t *testing.T) {
	n := newNode(t, four).run(t)
	first := asking("a", "x1/tap,x2/tap/stub", "")
	second := asking("a", "x1/tap,x2/tap/stub", "")
	second.Key.IfName = "net1"
	second.Mode = pod.ModeDelegate
	n.add(t, first)
	if got := n.add(t, second); len(got.Interfaces) != 1 || got.Interfaces[0].Name != "net1" {
		t.Errorf("the delegate has\n%s", summary(got))
	}
	third := asking("a", "x1/veth", "")
	third.Key.IfName = "net2"
	checkRefusal(t, n.refuses(t, third), pod.CodeInvalidAnnotation,
		"interface x1 is in the sandbox already, of attachment weft/c0ffee-a/eth0")
}

func TestAddressesOnlyForAnotherPluginsInterface(t *testing.T) {
	n := newNode(t, four, six).run(t)
	before := list(t, n.committer.Values())
	ev := asking("a", "x1/tap", "")
	ev.Mode = pod.ModeIPAM
	ev.Key.IfName = "net1"
	ev.Requested.Addresses = prefixes("10.1.0.9")
	a := n.add(t, ev)
	want := pod.Interface{
		Name: "net1", Type: "ipam", Pools: []string{"default4", "default6"},
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.9/28"), netip.MustParsePrefix("2001:db8:1::2/64")},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("2001:db8:1::1")},
	}
	if len(a.Interfaces) != 1 || fmt.Sprint(a.Interfaces[0]) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", a.Interfaces, want)
	}
	n = n.restarted(t)
	if stats, _ := n.Networks.Addresses(); stats[0].Used != 1 || list(t, n.committer.Values()) != before {
		t.Errorf("stats %v, values\n%s\nwant\n%s", stats, list(t, n.committer.Values()), before)
	}
	n.delete(t, ev)
	if stats, _ := n.Networks.Addresses(); stats[0].Used != 0 || stats[1].Cooling != 1 {
		t.Errorf("after the DEL: %v", stats)
	}
}

// The networks have the same addresses.
func TestValuesOfANetworkNameOnlyItsOwnObjects(t *testing.T) {
	n := nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four, six}}}).run(t)
	networks := []pod.Network{
		custom("blue", pod.L3, "10.5.0.0/24", "fd00:5::/64"), custom("red", pod.L3, "10.5.0.0/24", "fd00:5::/64"),
		custom("bridge", pod.L2, "10.5.0.0/24", "fd00:5::/64"),
	}
	n.set(t, networks...)
	objects := map[string][]string{"default": {"weft:pods", "weft-gateway", "weft-host"}}
	for _, network := range networks {
		objects[network.Name] = []string{"weft:" + network.Name, "weft-gw-" + network.Name}
	}
	for _, name := range []string{"default", "stub", "blue", "red", "bridge"} {
		for _, kind := range []string{"tap", "veth"} {
			ev := asking(name+kind, "x/"+kind+"/"+name, "")
			ev.Mode = pod.ModeChained
			n.checkNames(t, n.add(t, ev), name, objects)
		}
	}
}

// checkNames fails if a value of a pod names an object of another network than its own.
func (n *node) checkNames(t *testing.T, a *pod.Attachment, own string, objects map[string][]string) {
	t.Helper()
	for _, key := range n.Pods.Objects(a) {
		line := fmt.Sprintf("%s %+v", key, n.committer.Values()[key])
		for network, names := range objects {
			if network != own && slices.ContainsFunc(names, func(o string) bool { return strings.Contains(line, o) }) {
				t.Errorf("%s of a pod on %s names an object of %s", line, own, network)
			}
		}
	}
}
