package forward

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/weftnet/weft/vswitch/frame"
)

// The sub-interfaces of a trunk: interfaces 11 to 14 of port 1.
const (
	trunkPort = 1
	sub100    = 11
	sub200    = 12
	subQinQ   = 13 // 802.1ad 500, 802.1Q 100
	subRest   = 14
)

// dot1q and dot1ad are tags of a VLAN.
func dot1q(vlan uint16) frame.Tag  { return frame.Tag{Type: frame.TypeVLAN, Control: vlan} }
func dot1ad(vlan uint16) frame.Tag { return frame.Tag{Type: frame.TypeQinQ, Control: vlan} }

// tagged returns a frame with tags behind its addresses.
func tagged(raw []byte, tags ...frame.Tag) []byte {
	all := slices.Clone(raw[:12])
	for _, t := range tags {
		all = binary.BigEndian.AppendUint16(all, t.Type)
		all = binary.BigEndian.AppendUint16(all, t.Control)
	}
	return append(all, raw[12:]...)
}

// newTrunk returns a segment whose port 1 is a trunk: VLAN 100 is a bridge domain with port 2, VLAN 200 one with port
// 3, and the pair of tags 500 and 100 one with port 4.
func newTrunk(tb testing.TB) *segment {
	tb.Helper()
	s := newSegment(tb)
	s.set(sub100, Interface{Up: true, Sub: &Sub{trunkPort, TagMatch{Outer: 100}, 1}})
	s.set(sub200, Interface{Up: true, Sub: &Sub{trunkPort, TagMatch{Outer: 200}, 1}})
	s.set(subQinQ, Interface{Up: true, Sub: &Sub{trunkPort, TagMatch{AD: true, Outer: 500, Inner: 100}, 2}})
	for _, b := range []Bridge{plain(100, sub100, 2), plain(200, sub200, 3), plain(500, subQinQ, 4)} {
		s.change(b)
	}
	return s
}

func TestSubInterfaceReceivesFramesWithExactlyItsTags(t *testing.T) {
	native := func(s *segment) { s.change(plain(1, trunkPort, 5)) }
	rest := func(s *segment) { s.set(subRest, Interface{Sub: &Sub{trunkPort, TagMatch{Rest: true}, 0}}) }
	restOfNative := func(s *segment) { native(s); rest(s) }
	down := func(s *segment) { s.set(sub100, Interface{Sub: &Sub{trunkPort, TagMatch{Outer: 100}, 1}}) }
	const unknown, closed = "ethernet-input/unknown vlan", "ethernet-input/subinterface down"
	for _, c := range []struct {
		rule   string
		before func(*segment)
		tags   []frame.Tag
		want   []uint32
		reason string
	}{
		{"its VLAN", nil, []frame.Tag{dot1q(100)}, []uint32{2}, ""},
		{"another sub-interface's VLAN", nil, []frame.Tag{dot1q(200)}, []uint32{3}, ""},
		{"its VLAN with a priority", nil, []frame.Tag{dot1q(100 | 7<<13)}, []uint32{2}, ""},
		{"both tags", nil, []frame.Tag{dot1ad(500), dot1q(100)}, []uint32{4}, ""},
		{"a VLAN without sub-interface", nil, []frame.Tag{dot1q(300)}, nil, unknown},
		{"its VLAN with a tag behind it", nil, []frame.Tag{dot1q(100), dot1q(5)}, nil, unknown},
		{"its VLAN in a tag of 802.1ad", nil, []frame.Tag{dot1ad(100)}, nil, unknown},
		{"the pair with an outer tag of 802.1Q", nil, []frame.Tag{dot1q(500), dot1q(100)}, nil, unknown},
		{"the outer tag of the pair", nil, []frame.Tag{dot1ad(500)}, nil, unknown},
		{"the pair with another inner tag", nil, []frame.Tag{dot1ad(500), dot1q(101)}, nil, unknown},
		{"the pair with a third tag", nil, []frame.Tag{dot1ad(500), dot1q(100), dot1q(1)}, nil, unknown},
		{"a sub-interface that is down", down, []frame.Tag{dot1q(100)}, nil, closed},
		{"no tag, of a port that routes", nil, nil, nil, "ethernet-input/unknown ethernet type"},
		{"no tag, of a port in a bridge domain", native, nil, []uint32{5}, ""},
		{"its VLAN, of a port in a bridge domain", native, []frame.Tag{dot1q(100)}, []uint32{2}, ""},
		{"another VLAN, of a port in a bridge domain", native, []frame.Tag{dot1q(300)}, []uint32{5}, ""},
		{"another VLAN with a closed rest", restOfNative, []frame.Tag{dot1q(300)}, nil, closed},
		{"a priority without VLAN with a closed rest", restOfNative, []frame.Tag{dot1q(0)}, nil, closed},
		{"no tag with a closed rest", restOfNative, nil, []uint32{5}, ""},
		{"its VLAN with a closed rest", restOfNative, []frame.Tag{dot1q(100)}, []uint32{2}, ""},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := newTrunk(t)
			if c.before != nil {
				c.before(s)
				s.engine.Publish()
			}
			sent := tagged(between(host(1), host(9)), c.tags...)
			var got []uint32
			for _, d := range s.receive(trunkPort, sent, frame.Virtio{}) {
				got = append(got, d.on)
				// port 5 is in the bridge domain of the port itself, which changes no frame
				if want := between(host(1), host(9)); d.on != 5 && !bytes.Equal(d.raw, want) {
					t.Errorf("port %d got % x, want % x", d.on, d.raw, want)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("reached %v, want %v; drops %v", got, c.want, s.engine.Drops())
			}
			if c.reason != "" && s.engine.Drops()[c.reason] != 1 {
				t.Errorf("no %q in %v", c.reason, s.engine.Drops())
			}
		})
	}
}

func TestSubInterfaceSendsFramesWithItsTags(t *testing.T) {
	s := newTrunk(t)
	plainFrame := between(host(2), frame.Broadcast)
	for port, tags := range map[uint32][]frame.Tag{2: {dot1q(100)}, 3: {dot1q(200)}, 4: {dot1ad(500), dot1q(100)}} {
		got := s.receive(port, plainFrame, frame.Virtio{})
		if len(got) != 1 || got[0].on != trunkPort || !bytes.Equal(got[0].raw, tagged(plainFrame, tags...)) {
			t.Errorf("port %d: %+v, want tags %v", port, got, tags)
		}
	}
	if c := s.engine.Counters(sub200); c.TxPackets != 1 || c.TxBytes != uint64(len(plainFrame)+frame.VLANLen) {
		t.Errorf("counters of VLAN 200: %+v", c)
	}
	s.set(trunkPort, Interface{MAC: portMAC})
	s.engine.Publish()
	if got := s.receive(2, plainFrame, frame.Virtio{}); len(got) != 0 ||
		s.engine.Drops()["interface-output/interface is down"] != 1 {
		t.Errorf("the trunk is down: %+v, %v", got, s.engine.Drops())
	}
}

// A machine with one MAC in two VLANs, such as a router, is learned in both, and a machine with the MAC of one in
// another VLAN does not attract its frames.
func TestMACsAreLearnedByVLAN(t *testing.T) {
	s := newTrunk(t)
	s.receive(trunkPort, tagged(between(host(7), frame.Broadcast), dot1q(100)), frame.Virtio{})
	s.receive(3, between(host(7), frame.Broadcast), frame.Virtio{})
	got := s.receive(2, between(host(2), host(7)), frame.Virtio{})
	want := tagged(between(host(2), host(7)), dot1q(100))
	if len(got) != 1 || got[0].on != trunkPort || !bytes.Equal(got[0].raw, want) {
		t.Errorf("frame of VLAN 100: %+v", got)
	}
	got = s.receive(trunkPort, tagged(between(host(8), host(7)), dot1q(200)), frame.Virtio{})
	if len(got) != 1 || got[0].on != 3 {
		t.Errorf("frame of VLAN 200: %+v", got)
	}
	if c := s.engine.Counters(sub100); c.RxPackets != 1 || c.TxPackets != 1 {
		t.Errorf("counters of VLAN 100: %+v", c)
	}
}

func TestSubInterfacesFollowTheirParent(t *testing.T) {
	s := newTrunk(t)
	frame100 := tagged(between(host(1), host(9)), dot1q(100))
	s.engine.DelInterface(sub100)
	s.engine.Publish()
	if got := s.receive(trunkPort, frame100, frame.Virtio{}); len(got) != 0 {
		t.Errorf("after its end: %+v", got)
	}
	s.set(sub100, Interface{Up: true, Sub: &Sub{trunkPort, TagMatch{Outer: 101}, 1}})
	s.change(plain(100, sub100, 2))
	for vlan, want := range map[uint16]int{100: 0, 101: 1} {
		got := s.receive(trunkPort, tagged(between(host(1), host(9)), dot1q(vlan)), frame.Virtio{})
		if len(got) != want {
			t.Errorf("VLAN %d after the change to 101: %+v", vlan, got)
		}
	}
	s.set(trunkPort, Interface{Up: true, MAC: portMAC, MTU: 1400}) // a change of the parent keeps them
	s.engine.Publish()
	if got := s.receive(trunkPort, tagged(between(host(1), host(9)), dot1q(101)), frame.Virtio{}); len(got) != 1 {
		t.Errorf("after a change of the parent: %+v", got)
	}
}

// A pod with a trunk may offload checksums and segmentation of tagged frames: the offsets follow the tags.
func TestOffsetsOfOffloadsFollowTheTags(t *testing.T) {
	s := newTrunk(t)
	raw := make([]byte, 200)
	frame.PutEthernet(raw, frame.Broadcast, host(1), 0x88b5)
	v := frame.Virtio{Flags: 1, ChecksumStart: 100, ChecksumOffset: 6}
	with := v
	with.ChecksumStart += frame.VLANLen
	for from, c := range map[uint32]struct {
		sent, want []byte
		v, wantV   frame.Virtio
	}{
		trunkPort: {tagged(raw, dot1q(100)), raw, with, v},
		2:         {raw, tagged(raw, dot1q(100)), v, with},
	} {
		got := s.receive(from, c.sent, c.v)
		if len(got) != 1 || !bytes.Equal(got[0].raw, c.want) || got[0].virtio != c.wantV {
			t.Errorf("from %d: %+v, want offsets %+v; %v", from, got, c.wantV, s.engine.Drops())
		}
	}
}
