package frame_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

// segmentsOf returns the segments of a frame, or the frame itself with its complete checksum.
func segmentsOf(t *rapid.T, raw []byte, v frame.Virtio) (all [][]byte) {
	if !v.IsGSO() {
		whole := bytes.Clone(raw)
		if !frame.Complete(whole, &v) {
			t.Fatal("the checksum cannot be completed")
		}
		return [][]byte{whole}
	}
	s, ok := frame.NewSegmenter(raw, v)
	if !ok {
		t.Fatalf("no segments of a frame of %d bytes with %+v", len(raw), v)
	}
	room := make([]byte, s.Longest())
	for n := s.Next(room); n > 0; n = s.Next(room) {
		all = append(all, bytes.Clone(room[:n]))
	}
	return all
}

func TestCutFrameHasTheFirstSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGSO(t)
		want := segmentsOf(t, g.raw, g.virtio)
		if len(want) == 1 {
			return
		}
		b := frame.NewPool(frame.BufferSize, 1).One()
		b.SetLen(copy(b.Room(), g.raw))
		b.Virtio = g.virtio
		s, ok := frame.NewSegmenter(b.Bytes(), b.Virtio)
		if !ok {
			t.Fatal("no segments")
		}
		count, full, last := s.Sizes()
		if count != len(want) || full != len(want[0]) || last != len(want[count-1]) {
			t.Fatalf("%d segments of %d and %d bytes, want %d of %d and %d", count, full, last, len(want), len(want[0]),
				len(want[len(want)-1]))
		}
		n := rapid.IntRange(1, count-1).Draw(t, "kept")
		s.Cut(b, n)
		got := segmentsOf(t, b.Bytes(), b.Virtio)
		if len(got) != n {
			t.Fatalf("%d segments, want %d", len(got), n)
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("segment %d:\n%x\nwant\n%x", i, got[i], want[i])
			}
		}
	})
}

func TestDSCPIsSetWithAValidChecksum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dscp := rapid.Uint8Range(0, 63).Draw(t, "dscp")
		tos := rapid.Byte().Draw(t, "tos")
		raw := make([]byte, frame.IPv4Len)
		frame.PutIPv4(raw, frame.IPFields{TOS: tos, TTL: rapid.Byte().Draw(t, "ttl"), Source: a4, Destination: b4})
		p := frame.IPv4(raw)
		p.SetDSCP(dscp)
		if !p.ChecksumValid() || raw[1] != dscp<<2|tos&3 {
			t.Errorf("ToS %#x, checksum valid: %v", raw[1], p.ChecksumValid())
		}
		six := make([]byte, frame.IPv6Len)
		frame.PutIPv6(six, frame.IPFields{TOS: tos, Source: a6, Destination: a6})
		six[1] |= 0x0a // of the flow label
		frame.IPv6(six).SetDSCP(dscp)
		if got := six[0]<<4 | six[1]>>4; got != dscp<<2|tos&3 || six[0]>>4 != 6 || six[1]&0xf != 0xa {
			t.Errorf("traffic class %#x, header %x", got, six[:2])
		}
	})
}
