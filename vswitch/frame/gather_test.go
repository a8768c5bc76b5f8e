package frame_test

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// tcpSegments are the segments of a frame with a payload of n bytes, cut at size, each behind 8 other bytes.
func tcpSegments(t testing.TB, six bool, n, size int) [][]byte {
	t.Helper()
	e := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	ip4 := &layers.IPv4{Version: 4, TTL: 9, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}, Id: 7}
	ip6 := &layers.IPv6{Version: 6, HopLimit: 9, NextHeader: layers.IPProtocolTCP, SrcIP: make([]byte, 16), DstIP: make([]byte, 16)}
	tcp := &layers.TCP{SrcPort: 7, DstPort: 8, Seq: 1<<32 - 1000, ACK: true, PSH: true, Window: 99,
		Options: []layers.TCPOption{{OptionType: 1}, {OptionType: 1}, {OptionType: 8, OptionLength: 10, OptionData: make([]byte, 8)}}}
	payload := make(gopacket.Payload, n)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	parts := []gopacket.SerializableLayer{e, ip4, tcp, payload}
	v := frame.Virtio{Flags: 1, GSOType: frame.GSOTCP4, GSOSize: uint16(size), ChecksumStart: 34, ChecksumOffset: 16}
	_ = tcp.SetNetworkLayerForChecksum(ip4)
	if six {
		e.EthernetType, parts[1] = layers.EthernetTypeIPv6, ip6
		v.GSOType, v.ChecksumStart = frame.GSOTCP6, 54
		_ = tcp.SetNetworkLayerForChecksum(ip6)
	}
	s, ok := frame.NewSegmenter(written(t, parts...), v)
	if !ok {
		t.Fatal("no segments")
	}
	var list [][]byte
	for {
		room := make([]byte, 8+s.Longest())
		k := s.Next(room[8:])
		if k == 0 {
			return list
		}
		list = append(list, room[:8+k])
	}
}

// gathered takes segments as long as they are gathered, and returns the frame and how many they were.
func gathered(p *frame.Pool, segments [][]byte) (*frame.Buffer, int) {
	b := p.One()
	b.SetLen(copy(b.Room(), segments[0]))
	var g frame.Gatherer
	g.Begin(b, 8)
	n := 1
	for n < len(segments) && g.Append(segments[n][8:]) {
		n++
	}
	g.Finish()
	return b, n
}

func TestGatheredSegmentsAreCutIntoTheSameAgain(t *testing.T) {
	p := frame.NewPool(frame.LargeSize, 1)
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(64, 1400).Draw(r, "size")
		segments := tcpSegments(t, rapid.Bool().Draw(r, "six"), rapid.IntRange(1, min(60000, 64*size)).Draw(r, "payload"), size)
		b, n := gathered(p, segments)
		defer b.Release()
		if n != len(segments) || n > 1 != b.Virtio.IsGSO() {
			r.Fatalf("%d of %d gathered, %+v", n, len(segments), b.Virtio)
		}
		if n == 1 {
			return
		}
		b.Pull(8)
		b.Virtio.ChecksumStart -= 8
		s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
		for i, want := range segments {
			room := make([]byte, frame.LargeSize)
			if k := s.Next(room); !ok || !bytes.Equal(room[:k], want[8:]) {
				r.Fatalf("segment %d: %x became %x", i, want[8:], room[:k])
			}
		}
	})
}

func TestWhatIsNotTheNextSegmentIsNotGathered(t *testing.T) {
	const ip, tcp = 8 + 14, 8 + 34
	resum := func(b []byte) {
		b[tcp+16], b[tcp+17] = 0, 0
		c := ^frame.Sum(b[tcp:], frame.PseudoHeader(frame.IPv4(b[ip:]).Source(), frame.IPv4(b[ip:]).Destination(), 6, len(b)-tcp))
		b[tcp+16], b[tcp+17] = byte(c>>8), byte(c)
	}
	for rule, change := range map[string]func([][]byte){
		"a wrong checksum":        func(s [][]byte) { s[1][200]++ },
		"a wrong IP checksum":     func(s [][]byte) { s[1][ip+10]++ },
		"another sequence number": func(s [][]byte) { s[1], s[2] = s[2], s[1] },
		"another window":          func(s [][]byte) { s[1][tcp+15]++; resum(s[1]) },
		"an urgent pointer":       func(s [][]byte) { s[1][tcp+19]++; resum(s[1]) },
		"another option":          func(s [][]byte) { s[1][tcp+25]++; resum(s[1]) },
		"FIN":                     func(s [][]byte) { s[1][tcp+13] |= 1; resum(s[1]) },
		"another MAC":             func(s [][]byte) { s[1][8]++ },
		"padding":                 func(s [][]byte) { s[1] = append(s[1], 0) },
		"no whole header":         func(s [][]byte) { s[1] = s[1][:tcp+19] },
		"a first that is wrong":   func(s [][]byte) { s[0][200]++ },
		"a first that pushes":     func(s [][]byte) { s[0][tcp+13] |= 8; resum(s[0]) },
	} {
		segments := tcpSegments(t, false, 3000, 1000)
		change(segments)
		if b, n := gathered(frame.NewPool(frame.LargeSize, 1), segments); n != 1 || b.Virtio.IsGSO() || !bytes.Equal(b.Bytes(), segments[0]) {
			t.Errorf("%s: %d gathered", rule, n)
		}
	}
}
