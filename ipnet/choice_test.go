package ipnet_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// choosing is the configuration of a node with pools for different pods.
func choosing(t *testing.T) *node {
	t.Helper()
	pool := func(name, prefix string) netaddr.Pool {
		return netaddr.Pool{Name: name, Prefix: netip.MustParsePrefix(prefix)}
	}
	config := ipnet.Config{
		Networks: networks.Config{
			Pools: []netaddr.Pool{
				pool("all", "10.1.0.0/28"), pool("asked", "10.2.0.0/28"), pool("space", "10.3.0.0/28"),
				pool("node", "10.4.0.0/28"),
				pool("off", "10.5.0.0/28"), pool("theirs", "10.6.0.0/28"), pool("six", "fd00:1::/64"),
				pool("six2", "fd00:2::/64"),
			},
			NamespacePools: map[string][]string{"lab": {"space"}, "broken": {"off"}},
		},
	}
	config.Networks.Pools[4].Disabled = true
	config.Networks.Pools[5].Namespaces = []string{"team"}
	return nodeOf(t, config)
}

func TestPoolIsChosenByPodThenNamespaceThenNode(t *testing.T) {
	tests := []struct {
		name, namespace, pools string
		nodePools              []string
		want                   string
	}{
		{"no default", "default", "", nil, "all six"},
		{"the node", "default", "", []string{"node"}, "node six"},
		{"the namespace before the node", "lab", "", []string{"node"}, "space six"},
		{"a pool for one namespace", "team", "", []string{"node"}, "theirs six"},
		{"the pod before all", "lab", `["asked"]`, []string{"node"}, "asked six"},
		{"each family separately", "lab", `["six2"]`, []string{"node"}, "space six2"},
		{"the order of the names", "default", `["node","asked","six2","six"]`, nil, "node six2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := choosing(t).config
			config.Networks.NodePools = tt.nodePools
			n := nodeOf(t, config).run(t)
			ev := sandbox("a")
			ev.ID.Namespace = tt.namespace
			ev.Annotations = map[string]string{pod.AnnotationPools: tt.pools}
			if got := strings.Join(n.add(t, ev).Interfaces[0].Pools, " "); got != tt.want {
				t.Errorf("pools %s, want %s", got, tt.want)
			}
		})
	}
}

func TestErrorOfAnUnusablePoolNamesIt(t *testing.T) {
	tests := []struct {
		name, namespace, pools, addresses string
		code                              uint
		want                              string
	}{
		{
			"unknown", "default", `["alll"]`, "", pod.CodeUnknownNetwork,
			`annotation contivpp.io/ip-pools: unknown pool "alll"; known pools: [all`,
		},
		{"disabled", "default", `["off"]`, "", pod.CodeUnknownNetwork, "contivpp.io/ip-pools: pool off is disabled"},
		{
			"another namespace's", "default", `["theirs"]`, "", pod.CodeUnknownNetwork,
			`pool theirs is not for namespace "default"`,
		},
		{
			"disabled, of the namespace", "broken", "", "", pod.CodeUnknownNetwork,
			"namespace broken: pool off is disabled",
		},
		{"not a list", "default", `all`, "", pod.CodeInvalidAnnotation, "expected a JSON list"},
		{
			"an address of a disabled pool", "default", "", `["10.5.0.3"]`, pod.CodeUnknownNetwork,
			"address 10.5.0.3: pool off is disabled",
		},
		{
			"an address of another namespace's pool", "default", "", `["10.6.0.3"]`, pod.CodeUnknownNetwork,
			"address 10.6.0.3: pool theirs is not for",
		},
		{
			"an address of no pool", "default", "", `["10.9.0.3"]`, pod.CodeUnknownNetwork,
			"address 10.9.0.3 is in no pool",
		},
		{
			"no addresses", "default", "", `10.1.0.3`, pod.CodeInvalidAnnotation,
			"annotation contivpp.io/ip-addresses: expected a JSON list",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := choosing(t).run(t)
			ev := sandbox("a")
			ev.ID.Namespace = tt.namespace
			ev.Annotations = map[string]string{pod.AnnotationPools: tt.pools, pod.AnnotationIPs: tt.addresses}
			checkRefusal(t, n.refuses(t, ev), tt.code, tt.want, "add pod "+tt.namespace+"/a")
		})
	}
}

func TestAddFailsWithoutAnEnabledPool(t *testing.T) {
	n := nodeOf(t, ipnet.Config{
		Networks: networks.Config{Pools: []netaddr.Pool{{Name: "off", Prefix: four.Prefix, Disabled: true}}},
	}).run(t)
	checkRefusal(t, n.refuses(t, sandbox("a")), pod.CodeUnknownNetwork,
		`no pool of the node is enabled for namespace "default"`)
}

func TestDisabledPoolKeepsItsLeases(t *testing.T) {
	n := newNode(t, four, six).run(t)
	a := n.add(t, sandbox("a"))
	off := four
	off.Disabled = true
	n = n.restarted(t, off, six)
	for _, key := range n.Pods.Objects(a) {
		if n.committer.Values()[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	if got := n.add(t, sandbox("b")).Interfaces[0].Pools; fmt.Sprint(got) != "[default6]" {
		t.Errorf("pools of the next pod: %v", got)
	}
}

func TestAddressesOfTheRuntimePrecedeThoseOfAnnotations(t *testing.T) {
	n := newNode(t, four, six).run(t)
	ev := sandbox("a")
	ev.Annotations = map[string]string{pod.AnnotationIPs: `["10.1.0.7","2001:db8:1::7"]`}
	ev.Requested.Addresses = prefixes("10.1.0.9")
	if got := fmt.Sprint(n.add(t, ev).Interfaces[0].Addresses); got != "[10.1.0.9/32 2001:db8:1::7/128]" {
		t.Errorf("addresses %s", got)
	}
}

// static returns an ADD of a sandbox of pod a with a requested address.
func static(container, address string) *pod.AddPod {
	ev := sandbox("a")
	ev.Key.ContainerID = container
	ev.Netns.Path = "/run/netns/" + container
	ev.Annotations = map[string]string{pod.AnnotationIPs: `["` + address + `"]`}
	return ev
}

func TestAddressIsHandedOverToTheNewSandboxOfItsPod(t *testing.T) {
	n := newNode(t, four, six).run(t)
	old := static("old", "10.1.0.7")
	young := static("young", "10.1.0.7")
	n.add(t, old)
	n.fail = true
	if err := n.refuses(t, young); !errors.Is(err, errLater) {
		t.Errorf("error %v", err)
	}
	n.fail = false
	n.now = n.now.Add(time.Second)
	a := n.add(t, young)
	check := func(when string) {
		t.Helper()
		route := n.committer.Values()["vpp.route/weft:pods/ip4/10.1.0.7/32"].(wire.Route)
		if route.Paths[0].Interface != a.Interfaces[0].Object {
			t.Errorf("%s: the address is routed to %s, want %s", when, route.Paths[0].Interface, a.Interfaces[0].Object)
		}
		for _, l := range ofPods(second(n.Networks.Addresses())) {
			if l.Address.String() == "10.1.0.7" && (l.Holder != young.Key.String() || l.State != ipam.Used) {
				t.Errorf("%s: lease %+v", when, l)
			}
		}
	}
	check("added")
	n = n.restarted(t)
	check("restarted")
	n.delete(t, old)
	check("late DEL of the old one")
	if stats, _ := n.Networks.Addresses(); stats[0].Used != 1 || stats[1].Used != 1 || stats[1].Cooling != 1 {
		t.Errorf("stats %+v", stats)
	}
	n.delete(t, young)
	if left, want := list(t, n.committer.Values()), list(t,
		newNode(t, four, six).run(t).committer.Values()); left != want {
		t.Errorf("left\n%s\nwant\n%s", left, want)
	}
}

func second[A, B any](_ A, b B) B { return b }

func TestAddressIsNotHandedOverToAnotherPod(t *testing.T) {
	for name, change := range map[string]func(*pod.AddPod){
		"another pod":              func(ev *pod.AddPod) { ev.ID.Name = "b" },
		"one of another namespace": func(ev *pod.AddPod) { ev.ID.Namespace = "other" },
		"one recreated":            func(ev *pod.AddPod) { ev.ID.UID = "uid-2" },
		"no pod":                   func(ev *pod.AddPod) { ev.ID = pod.ID{} },
		"the same sandbox": func(ev *pod.AddPod) {
			ev.Key.ContainerID = "old"
			ev.Key.IfName = "net1"
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, four).run(t)
			n.add(t, static("old", "10.1.0.7"))
			ev := static("young", "10.1.0.7")
			change(ev)
			code := pod.CodeAddressInUse
			holder := "pod default/a on this node (weft/old/eth0)"
			if name == "one recreated" {
				code = pod.CodeTryAgain
				holder = "weft/old/eth0" // the old one's DEL is expected soon
			}
			checkRefusal(t, n.refuses(t, ev), code, "address 10.1.0.7 is held by "+holder)
		})
	}
}

func TestRecreatedPodGetsItsAddressAfterTheDELOfTheOldOne(t *testing.T) {
	n := newNode(t, four).run(t)
	old := static("old", "10.1.0.7")
	young := static("young", "10.1.0.7")
	young.ID.UID = "uid-2"
	n.add(t, old)
	n = n.restarted(t)
	checkRefusal(t, n.refuses(t, young), pod.CodeTryAgain,
		"address 10.1.0.7 is held by weft/old/eth0, of an earlier pod of this name that is not deleted yet; try again")
	n.delete(t, old)
	if got := mainAddress(n.add(t, young)); got != "10.1.0.7" {
		t.Errorf("address of the pod: %s", got)
	}
}

func TestCoolingAddressIsAllocatedOnRequest(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := static("old", "10.1.0.7")
	n.add(t, ev)
	n.delete(t, ev)
	ev.ID.Name = "b"
	if got := n.add(t, ev).Interfaces[0].Addresses[0].String(); got != "10.1.0.7/32" {
		t.Errorf("address %s", got)
	}
}

// foreign returns an ADD whose main interface has addresses of another plugin.
func foreign(name string, prefixes ...string) *pod.AddPod {
	ev := sandbox(name)
	for _, p := range prefixes {
		ev.Requested.Delegated = append(ev.Requested.Delegated, netip.MustParsePrefix(p))
		ev.Requested.DelegatedGateways = append(ev.Requested.DelegatedGateways, netip.Addr{})
	}
	return ev
}

func TestForeignAddressIsOnlyForTheMainInterface(t *testing.T) {
	n := newNode(t, four, six).run(t)
	before := list(t, n.committer.Values())
	ev := foreign("a", "fd00:7::5/64", "10.7.0.5/24")
	a := n.add(t, ev)
	main := a.Interfaces[0]
	if got := fmt.Sprint(main.Addresses, main.Pools,
		main.Gateways); got != "[10.7.0.5/32 fd00:7::5/128] [ ] [169.254.1.1 fe80::1]" {
		t.Errorf("addresses, pools and gateways %s", got)
	}
	if stats, _ := n.Networks.Addresses(); stats[0].Used+stats[1].Used != 0 {
		t.Errorf("stats %v", stats)
	}
	golden(t, "pod-foreign", list(t, without(n.committer.Values(), newNode(t, four, six).run(t).committer.Values())))
	n = n.restarted(t)
	checkRefusal(t, n.refuses(t, foreign("b", "10.7.0.5/32")), pod.CodeAddressInUse,
		"address 10.7.0.5 is held by pod default/a on this node (weft/c0ffee-a/eth0)")
	again := foreign("a", "10.7.0.5/32")
	again.Key.ContainerID = "younger"
	again.Netns.Inode++
	n.add(t, again)
	n.delete(t, ev)
	if route, ok := n.committer.Values()["vpp.route/weft:pods/ip4/10.7.0.5/32"].(wire.Route); !ok ||
		route.Paths[0].Interface == main.Object {
		t.Errorf("handed over: route %v", route)
	}
	n.delete(t, again)
	if after := list(t, n.committer.Values()); after != before {
		t.Errorf("left\n%s, was\n%s", after, before)
	}
}

func TestForeignAddressInAPoolIsNotAllocatedAgain(t *testing.T) {
	n := newNode(t, four).run(t)
	n.add(t, foreign("a", "10.1.0.2/24"))
	if got := n.add(t, sandbox("b")).Interfaces[0].Addresses[0].String(); got != "10.1.0.3/32" {
		t.Errorf("address of the next pod: %s", got)
	}
	n = n.restarted(t)
	checkRefusal(t, n.refuses(t, foreign("c", "10.1.0.3/24")), pod.CodeAddressInUse,
		"address 10.1.0.3 is held by pod default/b on this node (weft/c0ffee-b/eth0)")
	other := static("d", "10.1.0.2")
	other.ID.Name = "d"
	checkRefusal(t, n.refuses(t, other), pod.CodeAddressInUse,
		"address 10.1.0.2 is held by pod default/a on this node (weft/c0ffee-a/eth0)")
	n.delete(t, foreign("a"))
	if stats, _ := n.Networks.Addresses(); stats[0].Used != 1 || stats[0].Cooling != 1 {
		t.Errorf("after the DEL: %+v", stats)
	}
}

// A tenant may have written the configuration of the other plugin, so a pool that refuses an address to the pod's
// annotation refuses it to the plugin too, also if delegatedCIDRs contain it.
func TestForeignAddressObeysItsPool(t *testing.T) {
	const (
		plain     = "10.2.0.0/28"
		permitted = "10.7.0.0/28"
	) // the fixture has 10.7.0.0/24 in delegatedCIDRs
	const (
		notFor   = `pool other is not for namespace "default"`
		disabled = "pool other is disabled, or not for this node"
	)
	for name, tt := range map[string]struct {
		pool         netaddr.Pool
		prefix, want string
		isPermitted  bool // to the plugin; never to the pod's annotation
	}{
		"for another namespace":            {netaddr.Pool{Namespaces: []string{"payments"}}, plain, notFor, false},
		"for another namespace, delegated": {netaddr.Pool{Namespaces: []string{"payments"}}, permitted, notFor, false},
		"disabled":                         {netaddr.Pool{Disabled: true}, plain, disabled, false},
		"disabled, delegated":              {netaddr.Pool{Disabled: true}, permitted, disabled, true},
		"disabled, delegated, for another": {
			netaddr.Pool{Disabled: true, Namespaces: []string{"payments"}}, permitted, notFor, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := tt.pool
			pool.Name = "other"
			pool.Prefix = netip.MustParsePrefix(tt.prefix)
			address := pool.Prefix.Addr().Next().Next().Next()
			n := newNode(t, four, pool).run(t)
			if why := n.refuses(t, static("asks", address.String())); why == nil {
				t.Error("the pod gets the address by an annotation")
			}
			takes := foreign("takes", address.String()+"/32")
			if tt.isPermitted {
				if got := mainAddress(n.add(t, takes)); got != address.String() {
					t.Errorf("address %s, want %s", got, address)
				}
				return
			}
			checkRefusal(t, n.refuses(t, takes), pod.CodeUnknownNetwork,
				"address "+address.String()+" of the IPAM plugin: "+tt.want)
		})
	}
	n := newNode(t, four, netaddr.Pool{
		Name:       "ours",
		Prefix:     netip.MustParsePrefix("10.2.0.0/28"),
		Namespaces: []string{"default"},
	}).run(t)
	if got := mainAddress(n.add(t, foreign("admitted", "10.2.0.5/32"))); got != "10.2.0.5" {
		t.Errorf("address of a pool that admits the namespace: %s", got)
	}
}

func TestInvalidForeignAddressesAreRefused(t *testing.T) {
	for prefix, want := range map[string]string{
		"fe80::5/64": "cannot be a pod's", "224.0.0.1/4": "cannot be a pod's", "127.0.0.1/8": "cannot be a pod's",
		"::/0":                "cannot be a pod's",
		"::ffff:10.7.0.5/120": "cannot be a pod's", "10.7.0.5/24": "several addresses of one family",
		"fd00::5/64": "the node has no pool of ip6",
	} {
		n := newNode(t, four).run(t)
		_, err := n.loop.Do(t.Context(), foreign("a", prefix, "10.7.0.6/24"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", prefix, err, want)
		}
	}
	n := newNode(t, four).run(t)
	ev := foreign("a", "10.7.0.5/24")
	ev.Annotations = map[string]string{pod.AnnotationIPs: `["10.1.0.7"]`}
	checkRefusal(t, n.refuses(t, ev), pod.CodeInvalidAnnotation, "are another plugin allocates the addresses")
	ev.Mode = pod.ModeChained
	ev.Requested.Delegated = nil
	checkRefusal(t, n.refuses(t, ev), pod.CodeInvalidAnnotation, "are another plugin allocates the addresses")
}

func TestIPAMConfigurationChoosesThePools(t *testing.T) {
	pool := func(name, prefix string) netaddr.Pool {
		return netaddr.Pool{Name: name, Prefix: netip.MustParsePrefix(prefix)}
	}
	off := pool("off", "10.4.0.0/24")
	off.Disabled = true
	n := newNode(t, pool("a", "10.1.0.0/24"), pool("b", "10.2.0.0/24"), pool("six", "fd00:2::/64"), off).run(t)
	of := func(name string, pools ...string) *pod.AddPod {
		ev := sandbox(name)
		ev.Mode = pod.ModeIPAM
		ev.Requested.Pools = pools
		ev.Annotations = map[string]string{pod.AnnotationPools: `["a"]`}
		return ev
	}
	for i, tt := range []struct{ pools, want string }{
		{"b", "10.2.0.2/24"}, {"six", "fd00:2::2/64"}, {"b six", "10.2.0.3/24 fd00:2::3/64"},
		{"", "10.1.0.2/24 fd00:2::4/64"},
	} {
		var got []string
		for _, p := range n.add(t, of(fmt.Sprint("p", i), strings.Fields(tt.pools)...)).Interfaces[0].Addresses {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("with pools %q: %v, want %s", tt.pools, got, tt.want)
		}
	}
	checkRefusal(t, n.refuses(t, of("x", "nope")), pod.CodeUnknownNetwork,
		`pool of the IPAM configuration: unknown pool "nope"; known pools: [a b six]`)
	checkRefusal(t, n.refuses(t, of("x", "off")), pod.CodeUnknownNetwork,
		"pool of the IPAM configuration: pool off is disabled, or not for this node")
	elsewhere := of("x", "b")
	elsewhere.Requested.Addresses = prefixes("10.1.0.77")
	checkRefusal(t, n.refuses(t, elsewhere), pod.CodeUnknownNetwork,
		"address 10.1.0.77 is not in the pools of the IPAM configuration, [b]")
}
