package ipnet_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
)

// awaiting returns an ADD whose IPAM plugin asks through the interface.
func awaiting(name, kind, network string) *pod.AddPod {
	ev := delegate(name, "net1", kind, network)
	ev.Requested.AwaitsAddresses = true
	return ev
}

// addressed adds an address and routes to a stored attachment.
func addressed(a *pod.Attachment, prefix, gateway string, routes ...pod.Route) *pod.AddressPod {
	copied := *a
	copied.Interfaces = slices.Clone(a.Interfaces)
	ev := &pod.AddressPod{Key: a.Key, ID: a.Pod, Attachment: &copied}
	ev.Requested.Delegated = []netip.Prefix{netip.MustParsePrefix(prefix)}
	ev.Requested.DelegatedGateways = []netip.Addr{{}}
	if gateway != "" {
		ev.Requested.DelegatedGateways[0] = netip.MustParseAddr(gateway)
	}
	ev.Requested.Delegation.Routes = routes
	return ev
}

func lan(antiSpoof bool) pod.Network {
	network := custom("lan", pod.L2)
	network.AntiSpoof = antiSpoof
	return network
}

func TestExistingInterfaceGetsItsAddresses(t *testing.T) {
	for _, kind := range []string{pod.TypeTap, pod.TypeVeth} {
		n := newNode(t, four).run(t)
		n.set(t, lan(true))
		nothing := n.state(t)
		ev := awaiting("a", kind, "lan")
		a := n.add(t, ev)
		bare := n.committer.Values()
		by := pod.Route{Destination: netip.MustParsePrefix("10.99.0.0/16"), Gateway: netip.MustParseAddr("10.9.0.7")}
		again := pod.Route{Destination: by.Destination, Gateway: netip.MustParseAddr("10.9.0.8")}
		open := pod.Route{Destination: netip.MustParsePrefix("0.0.0.0/0")}
		other := pod.Route{Destination: netip.MustParsePrefix("::/0")}
		given := addressed(a, "10.9.0.2/24", "10.9.0.1", by, again, open, other)
		if _, err := n.loop.Do(t.Context(), given); err != nil {
			t.Fatal(err)
		}
		golden(t, "pod-addressed-"+kind, list(t, without(n.committer.Values(), bare)))
		for key, value := range bare {
			if !reflect.DeepEqual(n.committer.Values()[key], value) {
				t.Errorf("%s was %v and is %v", key, value, n.committer.Values()[key])
			}
		}
		i := given.Attachment.Interfaces[0]
		if got := fmt.Sprint(i.Addresses, i.Gateways,
			i.Routes); got != "[10.9.0.2/24] [10.9.0.1] [10.99.0.0/16 via 10.9.0.7 0.0.0.0/0 via 10.9.0.1]" {
			t.Errorf("addresses of the interface: %s", got)
		}
		n = n.restarted(t)
		n.delete(t, ev)
		if after := n.state(t); after != nothing {
			t.Errorf("before\n%s\nafter\n%s", nothing, after)
		}
	}
}

func TestInvalidAddressesChangeNothing(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, lan(false), custom("routed", pod.L3, "10.6.0.0/24"))
	ev := awaiting("a", "", "lan")
	ev.Annotations = asking("a", "x1/tap/routed", "").Annotations
	a := n.add(t, ev)
	before := n.state(t)
	refuses := func(given *pod.AddressPod, text string) {
		t.Helper()
		_, err := n.loop.Do(t.Context(), given)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q", err, text)
		}
		if after := n.state(t); after != before {
			t.Errorf("%s: before\n%s\nafter\n%s", text, before, after)
		}
	}
	refuses(addressed(a, "224.0.0.1/24", ""), "which cannot be a pod's address")
	refuses(addressed(a, "10.6.0.9/24", ""), "both lead to 10.6.0.0/24")
	n.breakIn("commit")
	refuses(addressed(a, "10.9.0.2/24", ""), "commit says no")
	n.breakIn("")
	gone := addressed(a, "10.9.0.2/24", "")
	gone.Key.ContainerID = "other"
	refuses(gone, "there is no interface that awaits addresses")
}

// The DHCP server may be any pod of the network. It gives no address that the pod's annotation could not request, or
// with antiSpoof a pod may send from the address of another one.
func TestDHCPGivesNoAddressOfAnotherInterface(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, lan(true), custom("other", pod.L2))
	n.add(t, asking("victim", "x1/tap/lan", `{"x1": {"ips": ["10.9.0.2/24", "fd09::2/64"]}}`))
	n.add(t, asking("elsewhere", "x1/tap/other", `{"x1": {"ips": ["10.9.0.4/24"]}}`))
	ev := awaiting("takes", "tap", "lan")
	ev.Annotations = asking("takes", "x1/tap/lan", `{"x1": {"ips": ["10.9.0.3/24"]}}`).Annotations
	a := n.add(t, ev)
	restarted := n.restarted(t)
	for _, n := range []*node{n, restarted} {
		before := n.state(t)
		for prefix, held := range map[string]string{
			"10.9.0.2/24": "address 10.9.0.2 is held by pod default/victim on this node (weft/c0ffee-victim/eth0/x1)",
			"10.9.0.2/16": "address 10.9.0.2 is held by pod default/victim on this node (weft/c0ffee-victim/eth0/x1)",
			"fd09::2/64":  "address fd09::2 is held by pod default/victim on this node (weft/c0ffee-victim/eth0/x1)",
			"10.9.0.3/24": "address 10.9.0.3 is held by pod default/takes on this node (nad-net1/c0ffee-takes/net1/x1)",
		} {
			_, err := n.loop.Do(t.Context(), addressed(a, prefix, ""))
			checkRefusal(t, err, pod.CodeAddressInUse, held)
		}
		for _, prefix := range []string{"10.9.0.0/24", "10.9.0.255/24"} {
			_, err := n.loop.Do(t.Context(), addressed(a, prefix, ""))
			checkRefusal(t, err, pod.CodeInvalidConfig, "which cannot be a pod's address")
		}
		if after := n.state(t); after != before {
			t.Errorf("before\n%s\nafter\n%s", before, after)
		}
	}
	if _, err := restarted.loop.Do(t.Context(), addressed(a, "10.9.0.4/24", "")); err != nil { // of another network
		t.Fatal(err)
	}
	// neither is the subnet's (RFC 3021)
	for name, prefix := range map[string]string{"even": "10.9.0.8/31", "odd": "10.9.0.11/31"} {
		if _, err := restarted.loop.Do(t.Context(),
			addressed(restarted.add(t, awaiting(name, "tap", "lan")), prefix, "")); err != nil {
			t.Error(err)
		}
	}
	other := restarted.add(t, awaiting("later", "tap", "lan"))
	_, err := restarted.loop.Do(t.Context(), addressed(other, "10.9.0.4/24", ""))
	checkRefusal(t, err, pod.CodeAddressInUse,
		"address 10.9.0.4 is held by pod default/takes on this node (nad-net1/c0ffee-takes/net1)")
}

// The server may know the pod by its MAC and give its new sandbox the address of the old one, whose DEL comes later.
func TestDHCPGivesANewSandboxTheAddressOfTheOldOne(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, lan(true))
	of := func(container, uid string) *pod.AddPod {
		ev := awaiting("a", "tap", "lan")
		ev.Key.ContainerID = container
		ev.Netns.Path = "/run/netns/" + container
		ev.ID.UID = uid
		return ev
	}
	if _, err := n.loop.Do(t.Context(), addressed(n.add(t, of("old", "uid-1")), "10.9.0.2/24", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.loop.Do(t.Context(), addressed(n.add(t, of("young", "uid-1")), "10.9.0.2/24", "")); err != nil {
		t.Error(err)
	}
	if before, after := n.state(t), n.restarted(t).state(t); after != before {
		t.Errorf("before a restart\n%s\nafter it\n%s", before, after)
	}
	_, err := n.loop.Do(t.Context(), addressed(n.add(t, of("recreated", "uid-2")), "10.9.0.2/24", ""))
	checkRefusal(t, err, pod.CodeTryAgain, "of an earlier pod of this name that is not deleted yet; try again")
}

func TestOnlyInterfacesWithAnL2NetworkCanAwaitAddresses(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, lan(false), custom("bridge", pod.L2, "10.5.0.0/24"), custom("routed", pod.L3, "10.6.0.0/24"))
	const text = "interface net1: this IPAM plugin uses the pod's interface, and needs a tap or veth on a network of type L2 without cidrs; network %s is not such a network"
	for _, network := range []string{"default", "stub", "bridge", "routed"} {
		checkRefusal(t, n.refuses(t, awaiting("a", "tap", network)), pod.CodeInvalidConfig, fmt.Sprintf(text, network))
	}
	checkRefusal(t, n.refuses(t, awaiting("a", "memif", "lan")), pod.CodeInvalidConfig, fmt.Sprintf(text, "lan"))
	chosen := awaiting("a", "tap", "lan")
	chosen.Annotations = map[string]string{pod.AnnotationIPs: `["10.9.0.7"]`}
	checkRefusal(t, n.refuses(t, chosen), pod.CodeInvalidAnnotation, "another plugin allocates the addresses")
}
