package frame_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/vswitch/frame"
)

func one(t testing.TB, size int) *frame.Buffer {
	t.Helper()
	return frame.NewPool(size, 1).One()
}

// fresh returns n bytes that all differ.
func fresh(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

func TestBorrowedFrameReadsLikeAnOwnedOne(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := one(t, smallSize)
		skip := rapid.SampledFrom([]int{0, frame.EthernetLen}).Draw(r, "skip")
		data := fresh(rapid.IntRange(1, smallSize-skip).Draw(r, "length"))
		if !b.Borrow(skip, data) {
			r.Fatal("rejected")
		}
		want := append(make([]byte, skip), data...)
		clear(b.Head()[:skip])
		if n := rapid.IntRange(0, len(want)).Draw(r, "cut"); rapid.Bool().Draw(r, "shorten") {
			b.SetLen(n)
			want = want[:n]
		}
		head, body := b.Parts()
		if got := append(bytes.Clone(head), body...); !bytes.Equal(got, want) || b.Len() != len(want) {
			r.Fatalf("parts are %x, want %x", got, want)
		}
		if !bytes.HasPrefix(want, b.Head()) || len(b.Head()) < min(len(want), frame.HeadLen) {
			r.Fatalf("head is %x of %x", b.Head(), want)
		}
		if n := rapid.IntRange(0, len(want)).Draw(r, "pull"); rapid.Bool().Draw(r, "pulls") {
			b.Pull(n)
			want = want[n:]
		}
		if !bytes.Equal(b.Bytes(), want) || !bytes.Equal(b.Head(), want) {
			r.Fatalf("frame is %x, want %x", b.Bytes(), want)
		}
	})
}

// The head is private from the start, and the body after Bytes.
func TestHeadIsPrivateWhileTheBodyIsBorrowed(t *testing.T) {
	data := fresh(1500)
	was := bytes.Clone(data)
	b := one(t, smallSize)
	b.Borrow(0, data)
	clear(data[:frame.HeadLen])
	if !bytes.Equal(b.Head(), was[:frame.HeadLen]) {
		t.Errorf("head changed to %x", b.Head())
	}
	if !bytes.Equal(b.Bytes(), was) {
		t.Errorf("frame changed to %x", b.Bytes())
	}
	clear(data)
	if _, body := b.Parts(); !bytes.Equal(b.Bytes(), was) || len(body) != 0 {
		t.Errorf("frame changed to %x, %d bytes are still borrowed", b.Bytes(), len(body))
	}
}

func TestBorrowRejectsLongFrames(t *testing.T) {
	b := one(t, smallSize)
	if b.Borrow(1, make([]byte, smallSize)) || b.Len() != 0 {
		t.Errorf("%d bytes", b.Len())
	}
}

func TestReleaseEndsBorrowing(t *testing.T) {
	for name, end := range map[string]func(*frame.Pool, *frame.Buffer){
		"released":   func(_ *frame.Pool, b *frame.Buffer) { b.Release() },
		"put":        func(p *frame.Pool, b *frame.Buffer) { p.Put([]*frame.Buffer{b}) },
		"made empty": func(_ *frame.Pool, b *frame.Buffer) { frame.Reset([]*frame.Buffer{b}); b.Release() },
	} {
		p := frame.NewPool(smallSize, 1)
		b := p.One()
		b.Borrow(0, fresh(1000))
		end(p, b)
		b = p.One()
		b.SetLen(1000)
		if head, body := b.Parts(); len(head) != 1000 || len(body) != 0 {
			t.Errorf("%s: %d bytes of its own, %d borrowed", name, len(head), len(body))
		}
	}
}

func TestPlainChecksumMatchesChecksum(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := frame.IPv4(rapid.SliceOfN(rapid.Byte(), frame.IPv4Len, frame.IPv4Len).Draw(r, "header"))
		p[0] = 0x45
		if rapid.Bool().Draw(r, "mend") {
			p[10] = 0
			p[11] = 0
			c := frame.Checksum(p)
			p[10] = byte(c >> 8)
			p[11] = byte(c)
		}
		if got, want := frame.PlainChecksumValid((*[frame.IPv4Len]byte)(p)), p.ChecksumValid(); got != want {
			r.Fatalf("%x: %v, want %v", []byte(p), got, want)
		}
		if p.TTL() == 0 {
			return
		}
		before := uint32(p[8])<<8 | uint32(p[9])
		checksum := uint32(p[10])<<8 | uint32(p[11])
		p.DecrementTTL()
		sum := ^checksum&0xffff + ^before&0xffff + before - 0x100 // RFC 1624, equation 3
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		if want := ^uint16(sum); uint16(p[10])<<8|uint16(p[11]) != want {
			r.Fatalf("checksum %04x changed to %x, want %04x", checksum, p[10:12], want)
		}
	})
}
