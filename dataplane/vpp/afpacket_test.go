package vpp

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/binapi/af_packet"

	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/wire"
)

// vethOf is a pair with its pod's end, eth1, in the namespace at path.
func vethOf(t *testing.T, path, name string) []object {
	t.Helper()
	inode, device, err := linux.InspectNamespace(path)
	if err != nil {
		t.Fatal(err)
	}
	return []object{
		{wire.NamespaceKey(path), wire.Namespace{Path: path, Inode: inode, Device: device}},
		{
			wire.VethKey(name),
			wire.Veth{
				Namespace: path,
				Name:      "eth1",
				HostName:  "weft" + name,
				MTU:       1500,
				Alias:     "weft:" + name,
				Up:        true,
			},
		},
	}
}

func afPacket(name string, v wire.Interface) object {
	v.Type = wire.TypeAFPacket
	v.AFPacket = wire.AFPacket{Link: "weft" + name, On: wire.VethKey(name)}
	return object{wire.InterfaceKey(name), v}
}

// bridgedPodOf is a pod's veth in a bridge domain, with an address of 10.7.0.0/24.
func bridgedPodOf(t *testing.T, path, name, address string) []object {
	t.Helper()
	p := netip.MustParsePrefix(address)
	on := wire.VethKey(name)
	return append(vethOf(t, path, name), afPacket(name, wire.Interface{MTU: 1500, Up: true}),
		inBridge("weft:blue", name),
		object{wire.LinuxAddressKey(on, p), wire.LinuxAddress{On: on, Namespace: path, Link: "eth1", Prefix: p}})
}

// held are the links that the dataplane holds.
func (l *lab) held() (links []string) {
	l.Helper()
	p, err := l.client.ports(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for _, link := range p.links {
		links = append(links, link)
	}
	slices.Sort(links)
	return links
}

func (l *lab) hold(link string) {
	l.Helper()
	l.send(&af_packet.AfPacketCreateV3{
		Mode:            af_packet.AF_PACKET_API_MODE_ETHERNET,
		UseRandomHwAddr: true,
		HostIfName:      link,
		NumRxQueues:     1, NumTxQueues: 1,
	}, &af_packet.AfPacketCreateV3Reply{})
	l.Cleanup(func() {
		r := ask("af_packet_delete", &af_packet.AfPacketDelete{HostIfName: link}, &af_packet.AfPacketDeleteReply{})
		l.client.exchange(l.Context(), r)
	})
}

func TestInterfaceOnAVethIsMadeReadBackChangedAndRemoved(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	path := netnstest.New(t)
	// Both are up: VPP sets the host's link down with its interface, which linux.veth would repair.
	l.try(vethOf(t, path, "a"), trial{backendOf(interfaceDescriptor),
		afPacket("a", wire.Interface{MAC: mac1, MTU: 1500, Up: true}),
		afPacket("a", wire.Interface{MAC: mac2, MTU: 1400, Up: true})})
	if links := l.held(); len(links) > 0 {
		t.Errorf("links %v are still held", links)
	}
}

func TestInterfaceWaitsForItsVeth(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	if err := l.commit(afPacket("a", wire.Interface{})); err == nil ||
		!strings.Contains(err.Error(), wire.VethKey("a")) {
		t.Errorf("without a veth: %v", err)
	}
	path := netnstest.New(t)
	l.mustCommit(append(vethOf(t, path, "a"), afPacket("a", wire.Interface{}))...)
	l.quiet()
	if err := l.commit(object{wire.VethKey("a"), nil}, object{wire.InterfaceKey("a"), nil}); err != nil {
		t.Error(err)
	}
	if links := l.held(); len(links) > 0 {
		t.Errorf("links %v are still held", links)
	}
}

func TestLinkOfAnInterfaceWithoutATagIsAdopted(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	path := netnstest.New(t)
	l.mustCommit(vethOf(t, path, "a")...)
	l.hold("wefta") // an agent that died before it set the tag
	l.mustCommit(afPacket("a", wire.Interface{MAC: mac1, MTU: 1400, Up: true}))
	l.quiet()
	if links := l.held(); len(links) != 1 {
		t.Errorf("links %v are held", links)
	}
}

func TestOrphanedLinksAreReleasedAndForeignOnesKept(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	for _, name := range []string{"weftold", "other0"} {
		pair := netlink.NewVeth(netlink.NewLinkAttrs())
		pair.Name = name
		pair.PeerName = name + "p"
		if err := netlink.LinkAdd(pair); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(pair) })
		l.hold(name)
	}
	l.resync()
	l.quiet()
	if links := l.held(); !slices.Equal(links, []string{"other0"}) {
		t.Errorf("links %v are held", links)
	}
}

// mustReach waits until the pod at path has an answer from another.
func mustReach(t *testing.T, path, to string) {
	t.Helper()
	want := "echo reply 0 from " + to
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if got = answerTo(t, path, netip.MustParseAddr(to)); got == want {
			return
		}
	}
	t.Fatalf("ping %s: %s", to, got)
}

func TestPodOnAVethIsRouted(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	path := netnstest.New(t)
	veth := vethOf(t, path, "a")
	pair := veth[1].value.(wire.Veth)
	pair.MAC = mac2
	pair.HostMAC = mac3
	pod := append(append(ground(), veth[0], object{veth[1].key, pair},
		afPacket("a", wire.Interface{MAC: mac1, MTU: 1500, Up: true})),
		routedPod("a", wire.LinuxAddress{On: wire.VethKey("a"), Namespace: path, Link: "eth1"})...)
	l.mustCommit(pod...)
	l.quiet()
	mustReach(t, path, "169.254.1.1")
	mustReach(t, path, "fd00::1")
	pair.MTU = 1400 // updated in place; dependents are recreated
	l.mustCommit(object{veth[1].key, pair})
	l.quiet()
	mustReach(t, path, "169.254.1.1")
	for i := range pod {
		pod[i].value = nil
	}
	l.mustCommit(pod...)
	if left := l.ours(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLostVethIsAttachedAgain(t *testing.T) {
	l := newWholeLab(t, newRuins(t).socket, nil)
	a := netnstest.New(t)
	b := netnstest.New(t)
	l.mustCommit(append(append(bridgedPodOf(t, a, "a", "10.7.0.1/24"), bridgedPodOf(t, b, "b", "10.7.0.2/24")...),
		bridge("weft:blue", learning(1)))...)
	l.quiet()
	mustReach(t, a, "10.7.0.2")
	link, err := netlink.LinkByName("wefta")
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.resync()
	l.quiet()
	mustReach(t, a, "10.7.0.2")
}

func TestPodOnAVethInABridgeDomainComesBackAfterTheDataplaneDied(t *testing.T) {
	d := newRuins(t)
	connected := make(chan string, 10)
	l := newWholeLab(t, d.socket, func(v string) { connected <- v })
	<-connected
	a := netnstest.New(t)
	b := netnstest.New(t)
	pods := append(append(bridgedPodOf(t, a, "a", "10.7.0.1/24"), bridgedPodOf(t, b, "b", "10.7.0.2/24")...),
		bridge("weft:blue", learning(1)))
	l.mustCommit(pods...)
	l.quiet()
	mustReach(t, a, "10.7.0.2")

	l.revive(d, connected, pods)
	mustReach(t, a, "10.7.0.2")

	netnstest.Remove(t, a) // the runtime's DEL may come after the namespace has gone
	for i := range pods {
		pods[i].value = nil
	}
	l.mustCommit(pods...)
	if left := l.ours(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
