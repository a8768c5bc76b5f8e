package slow

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// arp answers requests for the interface's own and proxied addresses and learns the MACs of senders.
func (p *Path) arp(m *Message, now time.Time) {
	a, err := frame.ParseARP(frame.Ethernet(m.Bytes()).Payload())
	if err != nil || a.SenderMAC().IsMulticast() {
		p.drop(badARP)
		return
	}
	if a.SenderMAC() != frame.Ethernet(m.Bytes()).Source() {
		p.drop(otherSender)
		return
	}
	i, ok := p.router.Interface(m.Interface)
	if !ok {
		p.drop(notOurs)
		return
	}
	if slices.Contains(i.Addresses, a.Sender()) {
		p.drop(claimsOurs)
		return
	}
	if usable4(a.Sender()) {
		p.claim(claim{m.Interface, a.Sender(), a.SenderMAC(), true}, now)
	}
	if a.Operation() != frame.ARPRequest {
		return
	}
	if !slices.Contains(i.Addresses, a.Target()) && !p.answersFor4(m.Interface, i, a.Sender(), a.Target()) {
		if a.Sender() != a.Target() { // a gratuitous request needs no reply
			p.drop(notOurs)
		}
		return
	}
	p.sendARP(m.Interface, a.SenderMAC(), frame.ARPFields{
		Operation: frame.ARPReply, SenderMAC: i.MAC, Sender: a.Target(), TargetMAC: a.SenderMAC(), Target: a.Sender(),
	})
}

// requestARP asks for the MAC of target.
func (p *Path) requestARP(index uint32, i Interface, target netip.Addr) {
	source, ok := i.source(target)
	if !ok {
		p.drop(noSource)
		return
	}
	p.sendARP(index, frame.Broadcast, frame.ARPFields{
		Operation: frame.ARPRequest, SenderMAC: i.MAC, Sender: source, Target: target,
	})
}

func (p *Path) sendARP(index uint32, to frame.MAC, f frame.ARPFields) {
	m := p.router.Inject()
	if m == nil {
		p.drop(workerFull)
		return
	}
	b := m.Room()[:frame.EthernetLen+frame.ARPLen]
	frame.PutEthernet(b, to, f.SenderMAC, frame.TypeARP)
	frame.PutARP(b[frame.EthernetLen:], f)
	m.SetLen(len(b))
	p.output(m, index)
}

// output sends an injected frame unchanged on an interface.
func (p *Path) output(m *Message, index uint32) {
	m.Reason = Output
	m.Out = index
	m.Virtio = frame.Virtio{}
	p.router.Injected()
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
