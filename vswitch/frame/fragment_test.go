package frame_test

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// drawFragment returns an IPv4 packet, possibly a fragment, with an option for all fragments and one for the first.
func drawFragment(t *rapid.T) (raw []byte, p *layers.IPv4, payload []byte) {
	payload = rapid.SliceOfN(rapid.Byte(), 1, 5000).Draw(t, "payload")
	p = &layers.IPv4{
		Version:    4,
		TTL:        64,
		Protocol:   99,
		Id:         4711,
		SrcIP:      []byte{10, 0, 0, 1},
		DstIP:      []byte{10, 0, 0, 2},
		FragOffset: rapid.Uint16Range(0, 1000).Draw(t, "offset"),
	}
	if rapid.Bool().Draw(t, "more") {
		p.Flags = layers.IPv4MoreFragments
		payload = payload[:len(payload)/8*8]
	}
	if rapid.Bool().Draw(t, "options") {
		p.Options = []layers.IPv4Option{
			{OptionType: 7, OptionLength: 7, OptionData: []byte{4, 0, 0, 0, 0}},
			{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}},
		}
	}
	b := gopacket.NewSerializeBuffer()
	e := &layers.Ethernet{SrcMAC: mac[:], DstMAC: mac[:], EthernetType: layers.EthernetTypeIPv4}
	o := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, o, e, p, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), p, payload
}

func TestFragmentsReassembleToThePacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw, p, payload := drawFragment(t)
		mtu := rapid.IntRange(68, 1500).Draw(t, "mtu")
		f, ok := frame.NewFragmenter(raw, mtu)
		if !ok {
			t.Fatal("rejected")
		}
		var joined []byte
		room := make([]byte, frame.EthernetLen+mtu)
		for n := f.Next(room); n > 0; n = f.Next(room) {
			q := gopacket.NewPacket(bytes.Clone(room[:n]), layers.LayerTypeEthernet, gopacket.Default)
			ip, ok := q.NetworkLayer().(*layers.IPv4)
			if !ok || int(ip.Length) != n-frame.EthernetLen || int(ip.Length) > mtu || sum(ip.Contents) != 0xffff {
				t.Fatalf("after %d bytes: %v", len(joined), q)
			}
			last := len(joined)+len(ip.Payload) == len(payload)
			more := !last || p.Flags == layers.IPv4MoreFragments
			if (ip.Flags == layers.IPv4MoreFragments) != more ||
				int(ip.FragOffset) != int(p.FragOffset)+len(joined)/8 ||
				ip.Id != 4711 {
				t.Fatalf("after %d bytes: %+v", len(joined), ip)
			}
			if len(p.Options) > 0 &&
				(bytes.Contains(ip.Contents, []byte{7, 7, 4}) != (len(joined) == 0) ||
					!bytes.Contains(ip.Contents, []byte{148, 4})) {
				t.Fatalf("after %d bytes: options %x", len(joined), ip.Contents[20:])
			}
			joined = append(joined, ip.Payload...)
		}
		if !bytes.Equal(joined, payload) {
			t.Fatalf("%d of %d bytes, or others", len(joined), len(payload))
		}
	})
}

// sum is the simplest form of RFC 1071.
func sum(b []byte) uint32 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
		s = s&0xffff + s>>16
	}
	return s
}

func TestFragmenterRejectsUnfragmentablePackets(t *testing.T) {
	whole := make([]byte, 100)
	frame.PutEthernet(whole, mac, mac, frame.TypeIPv4)
	frame.PutIPv4(whole[14:], frame.IPFields{Source: a4, Destination: b4, PayloadLen: 66})
	whole[20] = 0x40
	if _, ok := frame.NewFragmenter(whole, 60); ok {
		t.Error("accepted a packet with DF")
	}
	whole[20] = 0
	for rule, c := range map[string]struct {
		raw []byte
		mtu int
	}{"shorter than a header": {whole[:20], 60}, "cut": {whole[:90], 60}, "no room": {whole, 27}, "no frame": {
		nil, 60,
	}} {
		if _, ok := frame.NewFragmenter(c.raw, c.mtu); ok {
			t.Errorf("%s: accepted", rule)
		}
	}
	if _, ok := frame.NewFragmenter(whole, 28); !ok {
		t.Error("eight bytes at a time are enough")
	}
}
