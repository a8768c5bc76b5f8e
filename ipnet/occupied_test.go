package ipnet_test

import (
	"net/netip"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

func TestAddressOfAnotherNodeOrOfAnExternalInterfaceIsGivenToNoPod(t *testing.T) {
	hosts := netaddr.Pool{Name: "hosts", Prefix: netip.MustParsePrefix("192.0.2.0/28")}
	n := nodeOf(t, meshed(networks.TunnelVXLAN4, hosts)).run(t)
	if refused := n.join(t, self(), other(2), other(4)); len(refused) > 0 {
		t.Fatal(refused)
	}
	n.Networks.Occupy(networks.OfLinks, map[netip.Addr]string{
		netip.MustParseAddr("192.0.2.3"): "link eth0 of this node",
	})
	if refused := n.open(t, external("lab", "default", "eth1", "198.51.100.5/24")); len(refused) > 0 {
		t.Fatal(refused)
	}
	for _, n := range []*node{n, n.restarted(t)} {
		for address, by := range map[string]string{
			"192.0.2.2":    "node node2",
			"192.0.2.4":    "node node4",
			"198.51.100.5": "external interface lab",
			"192.0.2.5":    "",
		} {
			if got := n.Networks.Occupant(netip.MustParseAddr(address)); got != by {
				t.Errorf("%s is that of %q, want %q", address, got, by)
			}
		}
	}
	a := sandbox("a")
	if got := n.add(t, a).Interfaces[0].Addresses[0].Addr().String(); got != "192.0.2.5" {
		t.Errorf("the pod got %s", got)
	}
	fixed := sandbox("b")
	fixed.Requested.Addresses = prefixes("192.0.2.2/32")
	checkRefusal(t, n.refuses(t, fixed), pod.CodeAddressInUse,
		"address 192.0.2.2 belongs to node node2; request another one or none, or remove it there")

	n.join(t, self(), other(4))
	if got := n.Networks.Occupant(netip.MustParseAddr("192.0.2.2")); got != "" {
		t.Errorf("the address of a node that left is that of %s", got)
	}
}

func TestAddressOfTheNodeFromAnotherIPAMPluginIsRefused(t *testing.T) {
	n := newNode(t, four).run(t)
	n.Networks.Occupy(networks.OfLinks, map[netip.Addr]string{
		netip.MustParseAddr("10.1.0.5"): "link eth0 of this node",
		netip.MustParseAddr("10.7.0.5"): "link eth0 of this node",
	})
	for _, address := range []string{"10.1.0.5", "10.7.0.5"} { // of a pool, and of delegatedCIDRs
		ev := sandbox("a")
		ev.Requested.Delegated = prefixes(address + "/24")
		checkRefusal(t, n.refuses(t, ev), pod.CodeAddressInUse, "address "+address+" belongs to link eth0 of this node")
	}
}
