package forward

import (
	"bytes"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// FuzzBridge sends frames through a routed bridge domain and the slow path. Bridged frames arrive unchanged and never
// return to their sender; no buffer is lost.
func FuzzBridge(f *testing.F) {
	for _, raw := range seeds() {
		f.Add(raw, true, uint8(1), uint8(0), uint8(0), uint16(0))
		f.Add(raw, false, uint8(2), uint8(1), uint8(frame.GSOUDP), uint16(1000))
	}
	f.Add(between(host(1), host(2)), false, uint8(3), uint8(0), uint8(0), uint16(0))
	f.Add(between(bviMAC, frame.Broadcast), false, uint8(4), uint8(0), uint8(0), uint16(0))
	s := newRouted(f)
	now := time.Unix(1e9, 0)
	f.Fuzz(func(t *testing.T, raw []byte, toBVI bool, on, flags, gso uint8, size uint16) {
		if len(raw) > frame.BufferSize {
			return
		}
		if toBVI && len(raw) >= len(bviMAC) {
			raw = append(bviMAC[:len(bviMAC):len(bviMAC)], raw[len(bviMAC):]...)
		}
		s.tb = t
		s.now++
		in := uint32(on)%segmentPorts + 1
		v := frame.Virtio{Flags: flags, GSOType: gso, GSOSize: size, ChecksumStart: 34, ChecksumOffset: 6}
		for _, d := range s.receive(in, raw, v) {
			checkBridged(t, delivery{in, raw, v}, d)
		}
		now = now.Add(10 * time.Millisecond)
		s.engine.slow.Step(now)
		s.worker.round()
		for len(s.engine.events) > 0 {
			<-s.engine.events
		}
	})
}

// checkBridged checks a transmitted frame. A routed one has the MACs of the router.
func checkBridged(t *testing.T, in, out delivery) {
	t.Helper()
	switch frame.Ethernet(out.raw).Source() {
	case bviMAC, portMAC:
		return
	}
	if out.on == in.on || out.on > 3 || in.on > 3 || !bytes.Equal(out.raw, in.raw) || out.virtio != in.virtio {
		t.Errorf("%+v became %+v", in, out)
	}
}
