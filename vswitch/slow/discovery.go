package slow

import (
	"net/netip"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

var (
	allNodes    = netip.MustParseAddr("ff02::1")
	allNodesMAC = frame.MAC{0x33, 0x33, 0, 0, 0, 1}
)

// onLink is the hop limit of neighbour discovery; it proves that the sender is on this link (RFC 4861 7.1).
const onLink = 255

// discovery answers solicitations for the interface's own and proxied addresses and learns the MACs of neighbours.
func (rp *responder) discovery(m *Message, now time.Time) {
	ip, n, ok := parseDiscovery(m)
	if !ok {
		rp.drop(badDiscovery)
		return
	}
	i, ok := rp.router.Interface(m.Interface)
	if !ok || i.holds(ip.Source()) {
		rp.drop(notOurs6)
		return
	}
	if n.Type() == frame.ICMP6Advert {
		rp.advertised(m.Interface, n, now)
		return
	}
	source := ip.Source()
	if !i.holds(n.Target()) && !rp.answersFor6(m.Interface, i, source, n.Target()) {
		rp.drop(notOurs6)
		return
	}
	if mac, ok := n.LinkAddress(frame.NDSourceLink); ok && usable6(source, mac) {
		rp.resolver.claim(claim{m.Interface, source, mac, true}, now)
	}
	rp.advertise(m, i, n.Target())
}

func (rp *responder) advertised(index uint32, n frame.ND, now time.Time) {
	mac, ok := n.LinkAddress(frame.NDTargetLink)
	if !ok || !usable6(n.Target(), mac) {
		rp.drop(badDiscovery)
		return
	}
	rp.resolver.claim(claim{index, n.Target(), mac, n.Flags()&frame.NDFlagOverride != 0}, now)
}

// parseDiscovery applies the rules of RFC 4861 7.1.1 and 7.1.2.
func parseDiscovery(m *Message) (frame.IPv6, frame.ND, bool) {
	ip, err := frame.ParseIPv6(frame.Ethernet(m.Bytes()).Payload())
	if err != nil || ip.HopLimit() != onLink || !m.Whole {
		return nil, nil, false
	}
	body := ip[frame.IPv6Len:]
	n, err := frame.ParseND(body)
	if err != nil || !frame.ICMP(body).ChecksumValid(pseudo6(ip.Source(), ip.Destination(), len(body))) {
		return nil, nil, false
	}
	if ip.Source().IsUnspecified() {
		_, hasLink := n.LinkAddress(frame.NDSourceLink)
		group, _ := frame.SolicitedNode(n.Target())
		return ip, n, n.Type() == frame.ICMP6Solicit && !hasLink && ip.Destination() == group
	}
	solicited := n.Type() == frame.ICMP6Advert && n.Flags()&frame.NDFlagSolicited != 0
	return ip, n, !(solicited && ip.Destination().IsMulticast())
}

// advertise answers the solicitation in m. The answer to duplicate address detection goes to all nodes.
func (rp *responder) advertise(m *Message, i Interface, target netip.Addr) {
	e := frame.Ethernet(m.Bytes())
	asker := frame.IPv6(e.Payload()).Source()
	to := asker
	mac := e.Source()
	flags := uint8(frame.NDFlagSolicited | frame.NDFlagOverride)
	if asker.IsUnspecified() {
		to = allNodes
		mac = allNodesMAC
		flags = frame.NDFlagOverride
	}
	rp.sendND(m.Interface, ndAddresses{mac, i.MAC, target, to}, frame.NDFields{
		Type: frame.ICMP6Advert, Flags: flags, Target: target, Option: frame.NDTargetLink, Link: i.MAC,
	})
}

// solicit asks for the MAC of target.
func (l *link) solicit(index uint32, i Interface, target netip.Addr) {
	source := i.LinkLocal
	if !source.IsValid() {
		var ok bool
		if source, ok = i.source(target); !ok {
			l.drop(noSource6)
			return
		}
	}
	group, mac := frame.SolicitedNode(target)
	l.sendND(index, ndAddresses{mac, i.MAC, source, group}, frame.NDFields{
		Type: frame.ICMP6Solicit, Target: target, Option: frame.NDSourceLink, Link: i.MAC,
	})
}

type ndAddresses struct {
	toMAC, fromMAC frame.MAC
	from, to       netip.Addr
}

func (l *link) sendND(index uint32, v ndAddresses, f frame.NDFields) {
	m := l.router.Inject()
	if m == nil {
		l.drop(workerFull)
		return
	}
	b := m.Room()[:frame.EthernetLen+frame.IPv6Len+frame.NDLinkLen]
	frame.PutEthernet(b, v.toMAC, v.fromMAC, frame.TypeIPv6)
	frame.PutIPv6(b[frame.EthernetLen:], frame.IPFields{
		TTL: onLink, Protocol: frame.ProtocolICMPv6, Source: v.from, Destination: v.to, PayloadLen: frame.NDLinkLen,
	})
	body := b[frame.EthernetLen+frame.IPv6Len:]
	frame.PutND(body, f)
	frame.ICMP(body).PutChecksum(pseudo6(v.from, v.to, len(body)))
	m.SetLen(len(b))
	l.output(m, index)
}

func pseudo6(source, destination netip.Addr, length int) uint16 {
	return frame.PseudoHeader(source, destination, frame.ProtocolICMPv6, length)
}

func usable6(a netip.Addr, m frame.MAC) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !m.IsMulticast() && !m.IsZero()
}
