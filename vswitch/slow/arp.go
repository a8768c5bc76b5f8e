package slow

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// responder answers requests for the MACs of the dataplane's addresses, and learns the MACs of senders.
type responder struct {
	link
	resolver *resolver
}

// arp answers requests for the interface's own and proxied addresses and learns the MACs of senders.
func (rp *responder) arp(m *Message, now time.Time) {
	a, err := frame.ParseARP(frame.Ethernet(m.Bytes()).Payload())
	if err != nil || a.SenderMAC().IsMulticast() {
		rp.drop(badARP)
		return
	}
	if a.SenderMAC() != frame.Ethernet(m.Bytes()).Source() {
		rp.drop(otherSender)
		return
	}
	i, ok := rp.router.Interface(m.Interface)
	if !ok {
		rp.drop(notOurs)
		return
	}
	if slices.Contains(i.Addresses, a.Sender()) {
		rp.drop(claimsOurs)
		return
	}
	if usable4(a.Sender()) {
		rp.resolver.claim(claim{m.Interface, a.Sender(), a.SenderMAC(), true}, now)
	}
	if a.Operation() != frame.ARPRequest {
		return
	}
	if !slices.Contains(i.Addresses, a.Target()) && !rp.answersFor4(m.Interface, i, a.Sender(), a.Target()) {
		if a.Sender() != a.Target() { // a gratuitous request needs no reply
			rp.drop(notOurs)
		}
		return
	}
	rp.sendARP(m.Interface, a.SenderMAC(), frame.ARPFields{
		Operation: frame.ARPReply, SenderMAC: i.MAC, Sender: a.Target(), TargetMAC: a.SenderMAC(), Target: a.Sender(),
	})
}

// link sends frames on interfaces.
type link struct {
	router router
	*causeCounts
}

// requestARP asks for the MAC of target.
func (l *link) requestARP(index uint32, i Interface, target netip.Addr) {
	source, ok := i.source(target)
	if !ok {
		l.drop(noSource)
		return
	}
	l.sendARP(index, frame.Broadcast, frame.ARPFields{
		Operation: frame.ARPRequest, SenderMAC: i.MAC, Sender: source, Target: target,
	})
}

func (l *link) sendARP(index uint32, to frame.MAC, f frame.ARPFields) {
	m := l.router.Inject()
	if m == nil {
		l.drop(workerFull)
		return
	}
	b := m.Room()[:frame.EthernetLen+frame.ARPLen]
	frame.PutEthernet(b, to, f.SenderMAC, frame.TypeARP)
	frame.PutARP(b[frame.EthernetLen:], f)
	m.SetLen(len(b))
	l.output(m, index)
}

// output sends an injected frame unchanged on an interface.
func (l *link) output(m *Message, index uint32) {
	m.Reason = Output
	m.Out = index
	m.Virtio = frame.Virtio{}
	l.router.Injected()
}

// source selects the source address for target: the first of its family and scope, else the link-local address.
func (i Interface) source(target netip.Addr) (netip.Addr, bool) {
	local := target.Is6() && target.IsLinkLocalUnicast()
	if local && i.LinkLocal.IsValid() {
		return i.LinkLocal, true
	}
	for _, a := range i.Addresses {
		if a.Is4() == target.Is4() && (a.Is4() || a.IsLinkLocalUnicast() == local) {
			return a, true
		}
	}
	return i.LinkLocal, target.Is6() && i.LinkLocal.IsValid()
}

// holds reports whether a is one of the interface's own addresses.
func (i Interface) holds(a netip.Addr) bool {
	return a == i.LinkLocal || slices.Contains(i.Addresses, a)
}

// usable4 reports whether a can be the address of a host.
func usable4(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
