package frame_test

import (
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

const smallSize = 2 << 10

func TestPoolReturnsEachBufferOnce(t *testing.T) {
	p := frame.NewPool(smallSize, 4)
	v := make([]*frame.Buffer, 6)
	if n := p.Take(v); n != 4 || p.Free() != 0 || p.One() != nil {
		t.Fatalf("took %d, %d left", n, p.Free())
	}
	for i, b := range v[:4] {
		b.SetLen(1 << 20)
		if b.Len() != smallSize {
			t.Fatalf("holds %d", b.Len())
		}
		for j := range b.WithHead(frame.HeadRoom) {
			b.WithHead(frame.HeadRoom)[j] = byte(i)
		}
	}
	for i, b := range v[:4] {
		for _, x := range b.WithHead(frame.HeadRoom) {
			if x != byte(i) {
				t.Fatal("two buffers share memory")
			}
		}
		b.Virtio.Flags = 1
		b.Release()
	}
	if b := p.One(); p.Free() != 3 || b.Len() != 0 || b.Virtio != (frame.Virtio{}) {
		t.Errorf("%d left, a used buffer has %d bytes and %+v", p.Free(), b.Len(), b.Virtio)
	}
}

func TestLargeBufferHoldsTheLongestGSOFrame(t *testing.T) {
	b := frame.NewPool(frame.BufferSize, 1).One()
	if n := len(b.RoomWithHead(frame.VirtioLen)); n < 65549+frame.VirtioLen {
		t.Errorf("%d bytes", n)
	}
}
