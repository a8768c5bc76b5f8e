package forward

import (
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// Otherwise a pod could attract the frames of another one.
func TestDeniedFramesAreNotLearned(t *testing.T) {
	b := newBench(t)
	i := b.engine.live.Load().iface(1)
	if err := b.engine.SetInterface(1, Interface{
		Up:        true,
		MAC:       portMAC,
		Addresses: i.addresses,
		MACIP:     NewMACIPFilter(podRules()),
	}); err != nil {
		t.Fatal(err)
	}
	bridge := Bridge{
		ID:      1,
		Learn:   true,
		Forward: true,
		Flood:   true,
		UUFlood: true,
		BVI:     NoInterface,
		Members: []BridgeMember{{Interface: 1}, {Interface: 2}},
	}
	if err := b.engine.SetBridge(bridge); err != nil {
		t.Fatal(err)
	}
	b.engine.Publish()
	drops := func() uint64 { return b.engine.Drops()["l2-input-acl/input ACL misses"] }
	b.run(from(otherMAC, udp4("10.2.7.7", 18)), frame.Virtio{}, 1)
	b.run(source4("10.9.0.2", udp4("10.2.7.7", 18)), frame.Virtio{}, 1)
	b.run(advert6("fd09::2", podMAC), frame.Virtio{}, 1)
	if learned := b.engine.Drops()["l2-learn/L2 learn misses"]; learned != 0 || drops() != 3 || b.out.sent != 0 {
		t.Errorf("%d learned, %d sent, drops %v", learned, b.out.sent, b.engine.Drops())
	}
	b.run(udp4("10.2.7.7", 18), frame.Virtio{}, 1)
	if learned := b.engine.Drops()["l2-learn/L2 learn misses"]; learned != 1 || drops() != 3 || b.out.sent != 1 {
		t.Errorf("%d learned, %d sent, drops %v", learned, b.out.sent, b.engine.Drops())
	}
}

// A bridged GSO frame, tagged or not, is segmented for a port without that offload.
func TestBridgedFramesAreSegmentedForTheirPort(t *testing.T) {
	for rule, tags := range map[string]string{"untagged": "", "tagged": "\x81\x00\x00\x05"} {
		t.Run(rule, func(t *testing.T) {
			b := newBench(t)
			b.engine.ports.Load().at(2).offload.UDP = false
			bridge := Bridge{
				ID:      1,
				Flood:   true,
				UUFlood: true,
				BVI:     NoInterface,
				Members: []BridgeMember{{Interface: 1}, {Interface: 2}},
			}
			if err := b.engine.SetBridge(bridge); err != nil {
				t.Fatal(err)
			}
			b.engine.Publish()
			plain := udp4("10.2.7.7", 10000)
			v := usoOf(plain, 1000)
			v.ChecksumStart += uint16(len(tags))
			payload := 0
			b.out.show = func(raw []byte, _ frame.Virtio) {
				payload += len(decode(t, raw).TransportLayer().LayerPayload())
			}
			b.run(withTags(tags, plain), v, 1)
			if b.out.sent != 10 || payload != 10000 {
				t.Errorf("%d sent with %d bytes; drops %v", b.out.sent, payload, b.engine.Drops())
			}
		})
	}
}
