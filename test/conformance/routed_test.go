package conformance

import (
	"fmt"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Addresses of a case: the dataplane's MAC and addresses, and those of the peer.
const (
	macA, macB = "02:00:00:00:0a:01", "02:00:00:00:0b:01"
	podA, podB = "02:00:00:00:0a:02", "02:00:00:00:0b:02"
)

// routed has two ports in table 7: 10.0.1.0/24 and fd00:1::/64 behind a, 10.0.2.0/24 and fd00:2::/64 behind b. The
// peers are static neighbours.
type routed struct {
	a, b           *port
	indexA, indexB index
}

func (l *lab) routed() routed {
	l.Helper()
	for _, six := range []bool{false, true} {
		l.must(tableMessage(7, six, true))
	}
	var r routed
	r.a, r.indexA = l.routedPort("a", 1, macA, podA)
	r.b, r.indexB = l.routedPort("b", 2, macB, podB)
	return r
}

func (l *lab) routedPort(name string, n int, own, pod string) (*port, index) {
	l.Helper()
	link := fmt.Sprintf("weft%d", n)
	netns := l.veth(link)
	m := onLink(link)
	m.HwAddr = mac(own)
	i := l.make(name, m)
	l.must(setTable(i, 7, false))
	l.must(setTable(i, 7, true))
	l.must(setUp(i, true))
	l.must(addressMessage(i, fmt.Sprintf("10.0.%d.1/24", n), true))
	l.must(addressMessage(i, fmt.Sprintf("fd00:%d::1/64", n), true))
	l.must(neighbourMessage(i, fmt.Sprintf("10.0.%d.2", n), pod, true))
	l.must(neighbourMessage(i, fmt.Sprintf("fd00:%d::2", n), pod, true))
	p := l.plug(name, netns, pod)
	p.own = fmt.Sprintf("10.0.%d.2", n)
	p.gateway = fmt.Sprintf("10.0.%d.1", n)
	p.receives() // the interface is ready
	return p, i
}

// toRouter adds the Ethernet header of a packet from a's pod to the router.
func toRouter(kind layers.EthernetType, packet []gopacket.SerializableLayer) []gopacket.SerializableLayer {
	return append([]gopacket.SerializableLayer{ethernet(hw(podA), hw(macA), kind)}, packet...)
}

const (
	type4 = layers.EthernetTypeIPv4
	type6 = layers.EthernetTypeIPv6
)

// sends transmits packets of either family from a and records what both ports receive.
func (r routed) sends(packets ...[]gopacket.SerializableLayer) {
	r.a.Helper()
	for _, p := range packets {
		kind := type4
		if _, six := p[0].(*layers.IPv6); six {
			kind = type6
		}
		r.a.sends(toRouter(kind, p)...)
		r.a.receives()
		r.b.receives()
	}
}

// nullRouteWindow is longer than VPP's rate limit of ICMP errors for an unreachable route (ip_null_dpo.c).
const nullRouteWindow = 110 * time.Millisecond

// sendsApart sends packets further apart than VPP's rate limit of ICMP errors.
func (r routed) sendsApart(l *lab, packets ...[]gopacket.SerializableLayer) {
	r.a.Helper()
	for _, p := range packets {
		if l.dataplane.IsVPP() {
			<-time.After(nullRouteWindow)
		}
		r.sends(p)
	}
}

func udp4(from, to string, size int) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{
		ip4(from, to, 64, layers.IPProtocolUDP), &layers.UDP{SrcPort: 1000, DstPort: 2000},
		gopacket.Payload(make([]byte, size)),
	}
}

func udp6(from, to string, size int) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{
		ipv6(from, to, 64, layers.IPProtocolUDP), &layers.UDP{SrcPort: 1000, DstPort: 2000},
		gopacket.Payload(make([]byte, size)),
	}
}

// borrower returns port a in table 7, an unnumbered interface with donor gate; 10.1.0.5 and fd01::5 are behind it.
func (l *lab) borrower(gate index) (*port, index) {
	l.Helper()
	netns := l.veth("weft1")
	m := onLink("weft1")
	m.HwAddr = mac(macA)
	i := l.make("a", m)
	for _, six := range []bool{false, true} {
		l.must(setTable(i, 7, six))
	}
	l.must(setUp(i, true))
	l.must(unnumbered(i, gate, true))
	l.must(routeMessage(7, "10.1.0.5/32", via(i, "", false)))
	l.must(routeMessage(7, "fd01::5/128", via(i, "", true)))
	l.must(neighbourMessage(i, "10.1.0.5", podA, true))
	l.must(neighbourMessage(i, "fd01::5", podA, true))
	p := l.plug("a", netns, podA)
	p.own = "10.1.0.5"
	p.gateway = "169.254.1.1"
	p.receives()
	return p, i
}
