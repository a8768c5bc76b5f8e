package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"go.fd.io/govpp/binapi/l2"

	"github.com/weftnet/weft/memif"
)

var packetCases = []testCase{
	{name: "packet: an address of the dataplane answers pings", run: func(l *lab) {
		r := l.routed()
		r.sends(echo4("10.0.1.2", "10.0.1.1", 64, 56), echo6("fd00:1::2", "fd00:1::1", 64, 56),
			echo4("10.0.1.2", "10.0.2.1", 64, 1400), echo4("10.0.1.2", "10.0.1.1", 1, 8))
	}},
	{name: "packet: forwarding", run: func(l *lab) {
		r := l.routed()
		r.sends(udp4("10.0.1.2", "10.0.2.2", 100), udp6("fd00:1::2", "fd00:2::2", 100),
			udp4("10.0.1.2", "10.0.1.77", 10))
	}},
	{name: "packet: TTL exceeded", run: func(l *lab) {
		r := l.routed()
		short6 := echo6("fd00:1::2", "fd00:2::2", 1, 56)
		short4 := echo4("10.0.1.2", "10.0.2.2", 1, 56)
		r.sends(short4, short6)
	}},
	{name: "packet: no route", run: func(l *lab) {
		r := l.routed()
		r.sends(udp4("10.0.1.2", "172.16.0.1", 100), udp6("fd00:1::2", "fd99::1", 100))
	}},
	{name: "packet: dropping routes answer nothing", run: func(l *lab) {
		r := l.routed()
		l.must(routeMessage(7, "172.16.0.0/16", special(drop, false)))
		l.must(routeMessage(7, "fd99::/64", special(drop, true)))
		r.sends(udp4("10.0.1.2", "172.16.0.1", 100), udp6("fd00:1::2", "fd99::1", 100))
	}},
	{name: "packet: unreachable routes answer", kills: unreachKills, run: func(l *lab) {
		r := l.routed()
		l.must(routeMessage(7, "172.16.0.0/16", special(unreach, false)))
		l.must(routeMessage(7, "fd99::/64", special(unreach, true)))
		l.must(routeMessage(7, "172.17.0.0/16", special(prohibit, false)))
		r.sendsApart(l, udp4("10.0.1.2", "172.16.0.1", 100), udp6("fd00:1::2", "fd99::1", 100),
			udp4("10.0.1.2", "172.17.0.1", 100))
	}},
	{name: "packet: unreachable routes with a drop that is never preferred", run: func(l *lab) {
		r := l.routed()
		l.must(routeMessage(7, "172.16.0.0/16", special(unreach, false), weighted(special(drop, false), 1, 255)))
		l.must(routeMessage(7, "fd99::/64", special(unreach, true), weighted(special(drop, true), 1, 255)))
		r.sendsApart(l, udp4("10.0.1.2", "172.16.0.1", 100), udp6("fd00:1::2", "fd99::1", 100))
	}},
	{name: "packet: larger than the MTU", run: func(l *lab) {
		r := l.routed()
		l.must(mtu(r.indexB, 1300))
		whole := udp4("10.0.1.2", "10.0.2.2", 1400)
		whole[0].(*layers.IPv4).Flags = layers.IPv4DontFragment
		r.sends(whole, udp4("10.0.1.2", "10.0.2.2", 1400), udp6("fd00:1::2", "fd00:2::2", 1400))
	}},
	{name: "packet: to a port without a listener", run: func(l *lab) {
		r := l.routed()
		r.sends(udp4("10.0.1.2", "10.0.1.1", 100), udp6("fd00:1::2", "fd00:1::1", 100))
	}},
	{name: "packet: fragments to an own address", run: func(l *lab) {
		r := l.routed()
		l.must(mtu(r.indexA, 1500))
		for _, packet := range [][]gopacket.SerializableLayer{
			echo4("10.0.1.2", "10.0.1.1", 64, 2000), echo6("fd00:1::2", "fd00:1::1", 64, 2000),
			udp4("10.0.1.2", "10.0.1.1", 2000), udp6("fd00:1::2", "fd00:1::1", 2000),
		} {
			fragments := fragmented(packet)
			r.a.sendsAll(fragments)
			r.a.receives()
			slices.Reverse(fragments)
			r.a.sendsAll(fragments)
			r.a.receives()
		}
	}},
	{name: "packet: a neighbour is resolved", run: func(l *lab) {
		r := l.routed()
		l.must(neighbourMessage(r.indexB, "10.0.2.2", podB, false))
		l.must(neighbourMessage(r.indexB, "fd00:2::2", podB, false))
		r.b.own = "10.0.2.3" // a probe from 10.0.2.2 would reveal its MAC
		r.sends(udp4("10.0.1.2", "10.0.2.2", 100))
		r.b.sends(arpReply(hw(podB), "10.0.2.2", hw(macB), "10.0.2.1")...)
		r.b.receives()
		r.sends(udp4("10.0.1.2", "10.0.2.2", 101))
	}},
	{name: "packet: ARP", run: func(l *lab) {
		r := l.routed()
		for _, target := range []string{"10.0.1.1", "10.0.1.77", "10.0.2.1", "172.16.0.1"} {
			r.a.sends(arpRequest(hw(podA), "10.0.1.5", target)...)
			r.a.receives()
		}
		r.a.sends(arpRequest(hw(podA), "172.16.0.9", "10.0.1.1")...)
		r.a.receives()
		r.a.sends(arpRequest(hw(podA), "10.0.1.1", "10.0.1.1")...)
		r.a.receives()
		l.ask(neighboursOf(none, false))
	}},
	{name: "packet: neighbour discovery", run: func(l *lab) {
		r := l.routed()
		for _, target := range []string{"fd00:1::1", "fd00:1::77", "fd00:2::1"} {
			r.a.sends(solicitation(hw(podA), "fd00:1::5", target)...)
			r.a.receives()
		}
		l.ask(neighboursOf(none, true))
	}},
	{name: "packet: frames that are not for the interface", run: func(l *lab) {
		r := l.routed()
		for _, to := range []string{"02:00:00:00:99:99", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:05"} {
			r.a.sends(append([]gopacket.SerializableLayer{ethernet(hw(podA), hw(to), type4)},
				echo4("10.0.1.2", "10.0.1.1", 64, 56)...)...)
			r.a.receives()
		}
		r.sends(udp4("10.0.1.2", "255.255.255.255", 10), udp4("10.0.1.2", "224.0.0.5", 10),
			udp4("10.0.1.2", "10.0.2.255", 10), udp4("10.0.1.2", "10.0.1.255", 10))
	}},
	{name: "packet: proxy ARP", run: func(l *lab) {
		r := l.routed()
		l.must(proxied(7, "10.0.1.50", "10.0.1.60", true))
		l.must(proxied(7, "172.16.0.1", "172.16.0.9", true))
		ask := func(target string) {
			r.a.sends(arpRequest(hw(podA), "10.0.1.2", target)...)
			r.a.receives()
		}
		ask("10.0.1.55")
		l.must(proxying(r.indexA, true))
		for _, target := range []string{"10.0.1.55", "10.0.1.61", "172.16.0.5", "172.16.0.10"} {
			ask(target)
		}
	}},
	{name: "packet: an unnumbered interface answers for its donor", run: func(l *lab) {
		gate := l.pods()
		l.must(addressMessage(gate, "169.254.1.1/32", true))
		l.must(addressMessage(gate, "fd00::1/128", true))
		p, _ := l.borrower(gate)
		p.sends(arpRequest(hw(podA), "10.1.0.5", "10.1.0.9")...)
		p.receives()
		for _, packet := range [][]gopacket.SerializableLayer{
			toRouter(type4, echo4("10.1.0.5", "169.254.1.1", 64, 56)),
			toRouter(type6, echo6("fd01::5", "fd00::1", 64, 56)),
			solicitation(hw(podA), "fd01::5", "fd00::1"),
		} {
			p.sends(packet...)
			p.receives()
		}
		l.each(neighboursOf(none, false), routesOf(7, false), allRoutes(7, false))
	}},
	{name: "packet: the source of ICMPv6 errors by an unnumbered interface", run: func(l *lab) {
		gate := l.pods()
		l.must(addressMessage(gate, "169.254.1.1/32", true))
		p, i := l.borrower(gate)
		l.must(addressMessage(i, "fe80::1/128", true))
		l.must(routeMessage(7, "fd02::/64", special(unreach, true), weighted(special(drop, true), 1, 255)))
		lost := toRouter(type6, echo6("fd01::5", "fd02::9", 64, 56))
		p.sends(lost...)
		p.receives()
		l.must(unnumbered(i, gate, false))
		l.must(addressMessage(gate, "fd77::1/128", true))
		l.must(addressMessage(gate, "fd01::1/128", true))
		l.must(unnumbered(i, gate, true))
		if l.dataplane.IsVPP() {
			<-time.After(nullRouteWindow)
		}
		p.sends(lost...)
		p.receives()
	}},
	{name: "packet: MACIP lists stop forged senders", run: func(l *lab) {
		r := l.routed()
		l.must(macip(anyID, "pod", permit(podA, "10.0.1.2/32", "fd00:1::2/128")...))
		l.must(apply(r.indexA, 0, true))
		r.sends(udp4("10.0.1.2", "10.0.2.2", 100), udp4("10.0.1.3", "10.0.2.2", 100),
			udp6("fd00:1::2", "fd00:2::2", 100), udp6("fd00:1::3", "fd00:2::2", 100))
		r.a.sends(append([]gopacket.SerializableLayer{ethernet(hw("02:00:00:00:99:99"), hw(macA), type4)},
			udp4("10.0.1.2", "10.0.2.2", 100)...)...)
		r.b.receives()
		r.a.sends(arpRequest(hw(podA), "10.0.1.3", "10.0.1.1")...)
		r.a.receives()
	}},
	{name: "packet: an interface that is down", run: func(l *lab) {
		r := l.routed()
		l.must(setUp(r.indexB, false))
		r.a.sends(toRouter(type4, udp4("10.0.1.2", "10.0.2.2", 100))...)
		r.a.receives()
	}},
	{name: "packet: a bridge domain", run: func(l *lab) {
		b := l.bridged(0, 0)
		b.a.sends(ethernet(hw(podA), hw(podB), 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
		b.b.sends(ethernet(hw(podB), hw(podA), 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
		b.a.sends(ethernet(hw(podA), hw(podB), 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
		b.a.sends(ethernet(hw(podA), hw("02:00:00:00:77:77"), 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
		b.a.sends(ethernet(hw(podA), broadcast, 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
		b.a.sends(append([]gopacket.SerializableLayer{ethernet(hw(podA), hw("02:00:00:00:0d:01"), type4)},
			echo4("10.0.5.2", "10.0.5.1", 64, 56)...)...)
		b.receives()
		l.must(setUp(b.indexB, false))
		b.a.sends(ethernet(hw(podA), broadcast, 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.a.receives()
	}},
	{name: "packet: a split-horizon group", run: func(l *lab) {
		b := l.bridged(1, 1)
		b.a.sends(ethernet(hw(podA), broadcast, 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
		b.a.sends(ethernet(hw(podA), hw(podB), 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
	}},
	{name: "packet: a bridge domain that does not flood", run: func(l *lab) {
		b := l.bridged(0, 0)
		l.must(bridgeFlags(1, false, l2.BRIDGE_API_FLAG_UU_FLOOD|l2.BRIDGE_API_FLAG_LEARN))
		b.a.sends(ethernet(hw(podA), hw("02:00:00:00:77:77"), 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
		l.must(l2Entry(1, "02:00:00:00:77:77", b.indexB, true))
		b.a.sends(ethernet(hw(podA), hw("02:00:00:00:77:77"), 0x88b5), gopacket.Payload(make([]byte, 50)))
		b.receives()
	}},
	{
		name: "packet: a VXLAN tunnel whose source is an address of the dataplane",
		run:  func(l *lab) { l.overTunnel(true) },
	},
	{
		name: "packet: a VXLAN tunnel whose source is not an address of the dataplane",
		run:  func(l *lab) { l.overTunnel(false) },
	},
	{name: "packet: memifs with Ethernet", run: func(l *lab) {
		path := l.inRun("one.sock")
		l.must(socket(1, path, true))
		i := l.make("m", newMemif(1, 7))
		l.must(setUp(i, true))
		l.must(addressMessage(i, "10.0.1.1/24", true))
		l.must(neighbourMessage(i, "10.0.1.2", podA, true))
		p := l.attach("m", podA, memif.ClientConfig{Socket: path, ID: 7})
		p.own = "10.0.1.2"
		p.gateway = "10.0.1.1"
		p.receives()
		for _, size := range []int{8, 1400, 8000} {
			p.sends(append([]gopacket.SerializableLayer{ethernet(hw(podA), hw("02:00:00:00:02:01"), type4)},
				echo4("10.0.1.2", "10.0.1.1", 64, size)...)...)
			p.receives()
		}
	}},
	{name: "packet: memifs without Ethernet", run: func(l *lab) {
		path := l.inRun("one.sock")
		l.must(socket(1, path, true))
		bare := newMemif(1, 7)
		bare.Mode = 1
		i := l.make("m", bare)
		l.must(setUp(i, true))
		l.must(addressMessage(i, "10.0.1.1/24", true))
		l.must(addressMessage(i, "fd00:1::1/64", true))
		p := l.attach("m", podA, memif.ClientConfig{Socket: path, ID: 7, Mode: memif.IP})
		for _, packet := range [][]gopacket.SerializableLayer{
			echo4("10.0.1.2", "10.0.1.1", 64, 56), echo6("fd00:1::2", "fd00:1::1", 64, 56),
			echo4("10.0.1.2", "10.0.1.1", 64, 1400),
		} {
			frame := build(packet...)
			p.note("m sends %s", describe(frame, true))
			p.send(frame)
			p.note("m receives %s", describe(p.next(), true))
		}
	}},
}

// bridged is bridge domain 1 with two ports and a BVI with an address.
type bridged struct {
	a, b           *port
	indexA, indexB index
}

func (b bridged) receives() {
	b.a.Helper()
	b.a.receives()
	b.b.receives()
}

func (l *lab) bridged(groupA, groupB uint8) bridged {
	l.Helper()
	l.must(bridgeMessage(1, true))
	gate := l.make("bvi", loopback(0, "02:00:00:00:0d:01"))
	l.must(setUp(gate, true))
	l.must(joinAs(gate, 1, bvi, 0))
	l.must(addressMessage(gate, "10.0.5.1/24", true))
	l.must(neighbourMessage(gate, "10.0.5.2", podA, true))
	var b bridged
	b.a, b.indexA = l.bridgedPort("a", 1, podA, groupA)
	b.b, b.indexB = l.bridgedPort("b", 2, podB, groupB)
	return b
}

func (l *lab) bridgedPort(name string, n int, pod string, group uint8) (*port, index) {
	l.Helper()
	link := fmt.Sprintf("weft%d", n)
	netns := l.veth(link)
	i := l.make(name, onLink(link))
	l.must(setUp(i, true))
	l.must(joinAs(i, 1, 0, group))
	// Probes have MACs of their own, so that the bridge does not learn the pods' MACs from them.
	probe := fmt.Sprintf("02:00:00:00:0e:%02x", n)
	p := l.plug(name, netns, probe)
	p.own = fmt.Sprintf("10.0.5.%d", 100+n)
	p.gateway = "10.0.5.1"
	p.receives()
	_ = pod
	return p, i
}

// overTunnel sends a frame from a bridge domain into a tunnel, captures the outer packet on the uplink, and sends one
// back.
func (l *lab) overTunnel(ownSource bool) {
	l.Helper()
	netns := l.veth("weft2")
	m := onLink("weft2")
	m.HwAddr = mac(macB)
	uplink := l.make("uplink", m)
	l.must(setUp(uplink, true))
	l.must(addressMessage(uplink, "192.0.2.1/24", true))
	l.must(neighbourMessage(uplink, "192.0.2.2", podB, true))
	source := "192.0.2.1"
	if !ownSource {
		source = "198.51.100.1"
	}
	far := l.plug("uplink", netns, podB)
	far.own = "192.0.2.2"
	far.gateway = "192.0.2.1"
	far.receives()

	l.must(bridgeMessage(1, true))
	gate := l.make("bvi", loopback(0, "02:00:00:00:0d:01"))
	l.must(setUp(gate, true))
	l.must(joinAs(gate, 1, bvi, 0))
	l.must(addressMessage(gate, "10.0.5.1/24", true))
	tun := l.make("tunnel", tunnel(source, "192.0.2.2", 77))
	l.must(setUp(tun, true))
	l.must(joinAs(tun, 1, 0, 1))
	pod, _ := l.bridgedPort("a", 1, podA, 0)
	far.receives()

	pod.sends(ethernet(hw(podA), hw("02:00:00:00:77:77"), 0x88b5), gopacket.Payload(make([]byte, 50)))
	pod.receives()
	far.receives()
	inner := gopacket.Payload(build(ethernet(hw("02:00:00:00:77:77"), hw(podA), 0x88b5),
		gopacket.Payload(make([]byte, 50))))
	for _, vni := range []uint32{77, 78} {
		far.sends(ethernet(hw(podB), hw(macB), type4), ip4("192.0.2.2", source, 64, layers.IPProtocolUDP), &layers.UDP{
			SrcPort: 5555,
			DstPort: vxlanPort,
		},
			&layers.VXLAN{ValidIDFlag: true, VNI: vni}, inner)
		far.receives()
		pod.receives()
	}
}
