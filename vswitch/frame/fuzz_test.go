package frame_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/vswitch/frame"
)

// decodes reports whether gopacket decodes b as a layer of type l.
func decodes(b []byte, l gopacket.LayerType) (gopacket.Layer, bool) {
	p := gopacket.NewPacket(b, l, gopacket.DecodeOptions{Lazy: true, NoCopy: true})
	first := p.Layer(l)
	return first, first != nil
}

func FuzzIPv4(f *testing.F) {
	f.Add(sample4(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := frame.ParseIPv4(b)
		if err != nil {
			return
		}
		l, ok := decodes(b, layers.LayerTypeIPv4)
		if !ok || l.(*layers.IPv4).Version == 0 {
			return // gopacket stops at malformed options, which a router does not read
		}
		g := l.(*layers.IPv4)
		source, _ := netip.AddrFromSlice(g.SrcIP)
		if int(g.Length) != len(p) || int(g.IHL)*4 != p.HeaderLen() || g.TTL != p.TTL() || source != p.Source() ||
			string(g.Payload) != string(p.Payload()) || g.FragOffset != p.FragmentOffset() {
			t.Fatalf("%x: %+v", b, g)
		}
		_ = p.ChecksumValid()
		_ = p.Hash()
	})
}

func FuzzIPv6(f *testing.F) {
	f.Add(sample6(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := frame.ParseIPv6(b)
		if err != nil {
			return
		}
		if u, ok := p.Upper(); ok && (u.Offset > len(p) || u.Offset < frame.IPv6Len) {
			t.Fatalf("upper at %d of %d", u.Offset, len(p))
		}
		_ = p.Hash()
		l, ok := decodes(b, layers.LayerTypeIPv6)
		if !ok || b[6] == 0 {
			return // gopacket looks for jumbograms among hop-by-hop options
		}
		g := l.(*layers.IPv6)
		source, _ := netip.AddrFromSlice(g.SrcIP)
		if int(g.Length)+frame.IPv6Len != len(p) || g.HopLimit != p.HopLimit() || source != p.Source() {
			t.Fatalf("%x: %+v", b, g)
		}
	})
}

func FuzzARP(f *testing.F) {
	b := make([]byte, frame.ARPLen)
	frame.PutARP(b, frame.ARPFields{
		Operation: 1,
		Sender:    netip.AddrFrom4([4]byte{1}),
		Target:    netip.AddrFrom4([4]byte{2}),
	})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := frame.ParseARP(b)
		if err != nil {
			return
		}
		l, ok := decodes(b, layers.LayerTypeARP)
		if !ok {
			t.Fatalf("gopacket refuses %x", b)
		}
		g := l.(*layers.ARP)
		sender := a.Sender().As4()
		target := a.Target().As4()
		if g.Operation != a.Operation() || string(g.SourceProtAddress) != string(sender[:]) ||
			string(g.DstProtAddress) != string(target[:]) {
			t.Fatalf("%x: %+v", b, g)
		}
	})
}

func FuzzND(f *testing.F) {
	b := make([]byte, frame.NDLinkLen)
	frame.PutND(b, frame.NDFields{Type: frame.ICMP6Solicit, Target: netip.IPv6LinkLocalAllNodes(), Option: 1})
	b[8] = 0xfd
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := frame.ParseND(b)
		if err != nil {
			return
		}
		_, _ = n.LinkAddress(frame.NDSourceLink)
		_, _ = n.LinkAddress(frame.NDTargetLink)
		if n.Target().IsMulticast() {
			t.Fatalf("target %v", n.Target())
		}
	})
}

func FuzzTransport(f *testing.F) {
	f.Add(sample4(f)[20:], uint8(17))
	f.Add(sample6(f)[40:], uint8(6))
	f.Fuzz(func(t *testing.T, b []byte, _ uint8) {
		if u, err := frame.ParseUDP(b); err == nil {
			l, ok := decodes(b, layers.LayerTypeUDP)
			if !ok || uint16(l.(*layers.UDP).SrcPort) != u.SourcePort() || int(l.(*layers.UDP).Length) != len(u) {
				t.Fatalf("udp %x", b)
			}
		}
		if s, err := frame.ParseTCP(b); err == nil && (s.HeaderLen() > len(b) || s.HeaderLen() < frame.TCPLen) {
			t.Fatalf("tcp %x", b)
		}
		if e, err := frame.ParseEthernet(b); err == nil {
			_ = e.Source()
			_ = e.Destination()
			_ = e.Type()
			_ = e.Payload()
		}
	})
}

func FuzzVirtio(f *testing.F) {
	f.Add(make([]byte, frame.VirtioLen), append(make([]byte, 14), sample4(f)...))
	f.Fuzz(func(t *testing.T, h, raw []byte) {
		if len(h) < frame.VirtioLen {
			return
		}
		v := frame.ReadVirtio(h)
		again := make([]byte, frame.VirtioLen)
		if v.Put(again); string(again) != string(h[:frame.VirtioLen]) {
			t.Fatalf("%x became %x", h, again)
		}
		fits := v.Fits(len(raw))
		if len(raw) > frame.EthernetLen {
			for _, header := range []int{20, 40} {
				if n, ok := v.LongestIP(raw[frame.EthernetLen:], header, 6); ok && n < 0 {
					t.Fatalf("longest %d", n)
				}
			}
		}
		frame.Complete(raw, &v)
		_ = fits
	})
}
