package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// machineOutside is a machine that is connected to a network card of the node.
type machineOutside struct {
	card, netns string
}

// plugOutside adds a network card to the node, with a machine at the other end of its cable, whose link is eth0.
func plugOutside(t *testing.T, card string) machineOutside {
	t.Helper()
	o := machineOutside{card, netnstest.New(t)}
	o.plug(t)
	t.Cleanup(func() { o.unplug(t) })
	return o
}

func (o machineOutside) plug(t *testing.T) {
	t.Helper()
	there, err := os.Open(o.netns)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	cable := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: o.card},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(int(there.Fd())),
	}
	cable.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 1, o.card[len(o.card)-1]} // the same after it was unplugged
	if err := netlink.LinkAdd(cable); err != nil {
		t.Fatal(err)
	}
	// The node's kernel must not send packets by itself, which the test would find.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+o.card+"/disable_ipv6", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
}

func (o machineOutside) unplug(t *testing.T) {
	t.Helper()
	link, err := netlink.LinkByName(o.card)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		t.Error(err)
	}
}

// address adds an address to the machine's link.
func (o machineOutside) address(t *testing.T, name, prefix string) {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	netnstest.Do(t, o.netns, func() {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err == nil {
			err = netlink.AddrAdd(link, a)
		}
		if err != nil {
			t.Fatalf("add %s to %s: %v", prefix, name, err)
		}
	})
}

// route adds the machine's route to pods through the node.
func (o machineOutside) route(t *testing.T, prefix, gateway string) {
	t.Helper()
	p := netip.MustParsePrefix(prefix)
	netnstest.Do(t, o.netns, func() {
		r := &netlink.Route{
			Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
			Gw:  netip.MustParseAddr(gateway).AsSlice(),
		}
		if err := netlink.RouteReplace(r); err != nil {
			t.Fatalf("route to %s via %s: %v", prefix, gateway, err)
		}
	})
}

// reaches waits until an address replies.
func (l *lab) reaches(netns string, addresses ...string) {
	l.Helper()
	for _, a := range addresses {
		to := netip.MustParseAddr(a)
		p, err := ping.Open(netns, to)
		if err != nil {
			l.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
		if _, err := p.Reach(ctx, to); err != nil {
			l.Errorf("from %s: %v", netns, err)
		}
		cancel()
		if err := p.Close(); err != nil {
			l.Error(err)
		}
	}
}

// statuses returns the status of the node's external interfaces: "name@generation: reason".
func statuses(server *k8stest.Server) (all []string) {
	var own v1.NodeNetwork
	server.Object("nodenetworks.contivpp.io", "", node.Name, &own)
	for _, e := range own.Status.Externals {
		all = append(all, e.Name+": "+e.Reason)
	}
	return all
}

// openTo makes an ExternalInterface for an interface of the node.
func openTo(server *k8stest.Server, name, network string, part v1.ExternalNode) {
	part.Node = node.Name
	server.Put("externalinterfaces.contivpp.io", &v1.ExternalInterface{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.ExternalInterfaceSpec{Network: network, Nodes: []v1.ExternalNode{part}},
	})
}

// outsideLab is a node with a bridged network, teal, and a routed one, red.
func outsideLab(t *testing.T) (*lab, *k8stest.Server) {
	t.Helper()
	server := k8stest.New(t)
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "teal"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L2, CIDRs: []v1.CIDR{"10.7.0.0/24", "fd00:7::/64"}},
	})
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "red"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L3, CIDRs: []v1.CIDR{"10.6.0.0/24", "fd00:6::/64"}},
	})
	l := clusterLabWith(t, server, node.Options{})
	l.eventually("the agent has the cluster's networks", func() bool {
		var own v1.NodeNetwork
		return server.Object("nodenetworks.contivpp.io", "", node.Name, &own) && len(own.Status.Networks) == 3
	})
	return l, server
}

// onBoth adds a pod to both networks, and returns its addresses there.
func (l *lab) onBoth(server *k8stest.Server, name string) (p *node.Pod, teal, red []string) {
	l.Helper()
	p = l.pod(name)
	l.put(server, p, map[string]string{"contivpp.io/custom-if": "t1/tap/teal,r1/veth/red"})
	for _, a := range l.addresses(l.cni("ADD", p, nil)) {
		switch text := a.String(); {
		case strings.HasPrefix(text, "10.7.") || strings.HasPrefix(text, "fd00:7:"):
			teal = append(teal, text)
		case strings.HasPrefix(text, "10.6.") || strings.HasPrefix(text, "fd00:6:"):
			red = append(red, text)
		}
	}
	if len(teal) != 2 || len(red) != 2 {
		l.Fatalf("pod %s has %v and %v", name, teal, red)
	}
	return p, teal, red
}

// outsideMachines has machines outside of both networks, and their addresses.
type outsideMachines struct{ teal, red machineOutside }

func plugBoth(t *testing.T) outsideMachines {
	t.Helper()
	w := outsideMachines{plugOutside(t, "card0"), plugOutside(t, "card1")}
	w.teal.address(t, "eth0", "10.7.0.250/24")
	w.teal.address(t, "eth0", "fd00:7::fa/64")
	w.setRed(t)
	raise(t, "card0", "card1") // as administrators leave cards: up
	return w
}

// setRed configures the machine outside of the routed network.
func (w outsideMachines) setRed(t *testing.T) {
	t.Helper()
	for _, a := range []string{"192.0.2.9/24", "2001:db8:2::9/64", "198.51.100.9/24"} {
		w.red.address(t, "eth0", a)
	}
	w.red.route(t, "10.6.0.0/24", "192.0.2.1")
	w.red.route(t, "fd00:6::/64", "2001:db8:2::1")
}

// all tests that they reach each other in both families.
func (w outsideMachines) all(l *lab, p *node.Pod, teal, red []string) {
	l.Helper()
	l.reaches(p.Netns, "10.7.0.250", "fd00:7::fa", "192.0.2.9", "2001:db8:2::9")
	l.reaches(w.teal.netns, teal...)
	l.reaches(w.red.netns, red...)
}

func TestPodsReachOutsideMachinesByAnInterfaceOfTheNode(t *testing.T) {
	l, server := outsideLab(t)
	w := plugBoth(t)
	a, teal, red := l.onBoth(server, "a")
	before := l.snapshot()
	connected := func() bool {
		output := statuses(server)
		return slices.Contains(output, "out-red: ") && slices.Contains(output, "out-teal: ")
	}

	openTo(server, "out-teal", "teal", v1.ExternalNode{Interface: "card0"})
	openTo(server, "out-red", "red", v1.ExternalNode{
		Interface: "card1",
		IPs:       []string{"192.0.2.1/24", "2001:db8:2::1/64"},
	})
	l.eventually("the status says that both are connected", connected)
	w.all(l, a, teal, red)

	server.Disconnect() // the API server is down while the agent restarts
	l.restartAfter(func(string) error { return nil })
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the new agent's resync without its API server: %v", operations)
	}
	w.all(l, a, teal, red)
	server.Reconnect()
	b, tealOfB, redOfB := l.onBoth(server, "b")
	w.all(l, b, tealOfB, redOfB)
	l.cni("DEL", b, nil)

	openTo(server, "out-red", "red", v1.ExternalNode{Interface: "card1", IPs: []string{"198.51.100.1/24"}})
	w.red.route(t, "10.6.0.0/24", "198.51.100.1")
	l.reaches(w.red.netns, "198.51.100.1", red[0])
	l.reaches(a.Netns, "198.51.100.9")

	openTo(server, "out-wrong", "green", v1.ExternalNode{Interface: "card1"}) // other nodes are not affected
	w.red.unplug(t)
	l.eventually("the status says what is missing", func() bool {
		return slices.ContainsFunc(statuses(server), func(s string) bool {
			return strings.Contains(s, "out-red: ") && strings.Contains(s, "link card1: no such link")
		})
	})
	l.reaches(a.Netns, "10.7.0.250")
	w.red.plug(t)
	w.setRed(t)
	w.red.route(t, "10.6.0.0/24", "198.51.100.1")
	l.reaches(a.Netns, "198.51.100.9")
	l.eventually("the status says that both are connected again", connected)

	for _, name := range []string{"out-red", "out-teal", "out-wrong"} {
		server.Remove("externalinterfaces.contivpp.io", "", name)
	}
	l.eventually("the status has no interfaces", func() bool { return len(statuses(server)) == 0 })
	if diff := l.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind: %v", diff)
	}
	l.cni("DEL", a, nil)
}

// raise sets links of the node up.
func raise(t *testing.T, cards ...string) {
	t.Helper()
	for _, card := range cards {
		link, err := netlink.LinkByName(card)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestExternalInterfaceWaitsForItsNetworkWithAReason(t *testing.T) {
	l, server := outsideLab(t)
	plugOutside(t, "card0")
	openTo(server, "out", "green", v1.ExternalNode{Interface: "card0"})
	l.eventually("the status has the reason", func() bool {
		return slices.Equal(statuses(server), []string{`out: there is no network "green" on this node yet`})
	})
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "green"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L2},
	})
	l.eventually("it is connected when its network exists", func() bool {
		return slices.Equal(statuses(server), []string{"out: "})
	})
	server.Remove("customnetworks.contivpp.io", "", "green")
	l.eventually("it is released with its network", func() bool {
		return slices.Equal(statuses(server), []string{`out: there is no network "green" on this node yet`})
	})
}

// Where the kernel has no VLANs, the test checks the status.
func TestPodsReachOutsideMachinesByAVLAN(t *testing.T) {
	l, server := outsideLab(t)
	o := plugOutside(t, "card0")
	vlans := true
	for id := range 2 {
		netnstest.Do(t, o.netns, func() { vlans = addVLAN(t, "eth0", 5+id) && vlans })
	}
	five := int32(5)
	six := int32(6)
	openTo(server, "out-teal", "teal", v1.ExternalNode{Interface: "card0", VLAN: &five})
	openTo(server, "out-red", "red", v1.ExternalNode{
		Interface: "card0",
		VLAN:      &six,
		IPs:       []string{"192.0.2.1/24", "2001:db8:2::1/64"},
	})
	if !vlans {
		l.eventually("the status says that VLANs are not supported", func() bool {
			output := statuses(server)
			return len(output) == 2 && strings.HasPrefix(output[0], "out-red: ") &&
				strings.Contains(output[0], "create link of VLAN 6 on card0: operation not supported")
		})
		t.Skip("needs VLAN links, which this kernel lacks (module 8021q)")
	}
	o.address(t, "vlan5", "10.7.0.250/24")
	o.address(t, "vlan5", "fd00:7::fa/64")
	o.address(t, "vlan6", "192.0.2.9/24")
	o.address(t, "vlan6", "2001:db8:2::9/64")
	o.route(t, "10.6.0.0/24", "192.0.2.1")
	o.route(t, "fd00:6::/64", "2001:db8:2::1")
	a, teal, red := l.onBoth(server, "a")
	l.reaches(a.Netns, "10.7.0.250", "fd00:7::fa", "192.0.2.9", "2001:db8:2::9")
	l.reaches(o.netns, append(teal, red...)...)
	server.Remove("externalinterfaces.contivpp.io", "", "out-red")
	server.Remove("externalinterfaces.contivpp.io", "", "out-teal")
	l.eventually("no VLAN link is left over", func() bool {
		links, err := netlink.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(links, func(l netlink.Link) bool { return l.Type() == "vlan" })
	})
	l.cni("DEL", a, nil)
}

// addVLAN makes a link vlan<id> in the calling thread's namespace; false: this kernel has no VLANs.
func addVLAN(t *testing.T, on string, id int) bool {
	t.Helper()
	parent, err := netlink.LinkByName(on)
	if err == nil {
		err = netlink.LinkSetUp(parent)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := "vlan" + string(rune('0'+id))
	err = netlink.LinkAdd(&netlink.Vlan{
		LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: parent.Attrs().Index},
		VlanId:    id,
	})
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatal(err)
	}
	return err == nil
}
