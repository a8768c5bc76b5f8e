package forward

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/vswitch/frame"
)

// longTunnelPacket is a tunnel packet as the other end sends it, and the frame in it.
func longTunnelPacket(t *testing.T, s *segment, size int) (packet, inner []byte) {
	t.Helper()
	inner = between(host(1), host(9))
	for len(inner) < size {
		inner = append(inner, byte(len(inner)*7+len(inner)>>8))
	}
	sent := s.receive(1, inner, frame.Virtio{})
	if len(sent) != 1 {
		t.Fatalf("%d packets sent, drops %v", len(sent), s.engine.Drops())
	}
	return reflected(sent[0].raw), inner
}

// piecesOf cuts a packet into fragments as a router of IPv4, or a sender of IPv6, does.
func piecesOf(t *testing.T, packet []byte, mtu int) (pieces [][]byte) {
	t.Helper()
	f, ok := frame.NewFragmenter(packet, mtu)
	if frame.Ethernet(packet).Type() == frame.TypeIPv6 {
		f, ok = frame.NewFragmenter6(packet, mtu, 7)
	}
	if !ok {
		t.Fatal("the packet cannot be cut")
	}
	for {
		room := make([]byte, 2000)
		n := f.Next(room)
		if n == 0 {
			return pieces
		}
		pieces = append(pieces, room[:n])
	}
}

// numbered gives a fragment of IPv4 another identification.
func numbered(raw []byte, id uint16) []byte {
	raw = slices.Clone(raw)
	raw[18] = byte(id >> 8)
	raw[19] = byte(id)
	fixIPv4Checksum(raw)
	return raw
}

func (s *segment) receiveAll(pieces ...[]byte) (seen []delivery) {
	for _, raw := range pieces {
		seen = append(seen, s.receive(uplinkIndex, raw, frame.Virtio{})...)
	}
	return seen
}

func TestFragmentsOfTunnelPacketsAreReassembledInAnyOrder(t *testing.T) {
	for f := range tunnelEnds {
		s := newTunnelSegment(t, f)
		packet, inner := longTunnelPacket(t, s, 1400)
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 0, 2, 2, 1}} {
			pieces := piecesOf(t, packet, 576)
			var in [][]byte
			for _, n := range order {
				in = append(in, pieces[n])
			}
			seen := s.receiveAll(in...)
			if len(seen) != 1 || seen[0].on != 1 || !bytes.Equal(seen[0].raw, inner) {
				t.Errorf("IPv%d, %v: %d frames, drops %v", f, order, len(seen), s.engine.Drops())
			}
		}
		for name, n := range s.engine.Drops() {
			if strings.HasPrefix(name, "vxlan4-input") {
				t.Errorf("IPv%d: %d of %s", f, n, name)
			}
		}
	}
}

// A router between the nodes carries 1500 bytes, and the pods send packets of the largest MTU.
func TestFragmentsOfJumboTunnelPacketsAreReassembled(t *testing.T) {
	for f := range tunnelEnds {
		s := newTunnelSegment(t, f)
		tunnel := Interface{Up: true, MTU: frame.MaxMTU, MAC: frame.MAC{2, 0, 0, 0, 0, 8}, Tunnel: tunnelTo(f)}
		s.set(tunnelIndex, tunnel)
		s.set(uplinkIndex, Interface{Up: true, MTU: 9700, MAC: portMAC, IP6Enabled: true,
			Addresses: []netip.Addr{tunnelEnds[IP4][0], tunnelEnds[IP6][0]}})
		s.engine.Publish()
		packet, inner := longTunnelPacket(t, s, frame.EthernetLen+frame.MaxMTU)
		seen := s.receiveAll(piecesOf(t, packet, 1500)...)
		if len(seen) != 1 || seen[0].on != 1 || !bytes.Equal(seen[0].raw, inner) {
			t.Errorf("IPv%d: %d frames, drops %v", f, len(seen), s.engine.Drops())
		}
	}
}

// A copy must not stand for a fragment that is missing: the packet would have bytes of an earlier one.
func TestCopiesOfFragmentsCompleteNoTunnelPacket(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	packet, inner := longTunnelPacket(t, s, 1400)
	pieces := piecesOf(t, packet, 576)
	if seen := s.receiveAll(pieces[0], pieces[0], pieces[2], pieces[2]); len(seen) != 0 {
		t.Errorf("%d frames without the second fragment", len(seen))
	}
	if seen := s.receiveAll(pieces[1]); len(seen) != 1 || !bytes.Equal(seen[0].raw, inner) {
		t.Errorf("%d frames, drops %v", len(seen), s.engine.Drops())
	}
}

// Each node numbers its packets for itself.
func TestFragmentsOfTwoNodesWithOneIdentificationAreNotJoined(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	second := tunnelTo(IP4)
	second.Destination = netip.AddrPortFrom(second.Destination.Addr().Next(), second.Destination.Port())
	s.set(tunnelIndex+1, Interface{Up: true, MTU: 1400, MAC: frame.MAC{2, 0, 0, 0, 0, 9}, Tunnel: second})
	b := plain(1, 1)
	for n := range uint32(2) {
		b.Members = append(b.Members, BridgeMember{Interface: tunnelIndex + n, SplitHorizon: 1})
	}
	must(t, s.engine.SetBridge(b))
	s.engine.Publish()
	packet, inner := longTunnelPacket(t, newTunnelSegment(t, IP4), 1400)
	pieces := piecesOf(t, packet, 1300)
	var others [][]byte
	for _, raw := range pieces {
		raw = slices.Clone(raw)
		raw[29] = second.Destination.Addr().As4()[3]
		fixIPv4Checksum(raw)
		others = append(others, raw)
	}
	if seen := s.receiveAll(pieces[0], others[1]); len(seen) != 0 {
		t.Errorf("%d frames of fragments of two nodes", len(seen))
	}
	seen := s.receiveAll(others[0], pieces[1])
	if len(seen) != 2 || !bytes.Equal(seen[0].raw, inner) || !bytes.Equal(seen[1].raw, inner) {
		t.Errorf("%d frames of two packets, drops %v", len(seen), s.engine.Drops())
	}
}

// No router cuts a packet within the UDP header, but a node may send such a fragment.
func TestFragmentsWithoutAWholeUDPHeaderAreNoTunnelPackets(t *testing.T) {
	for f := range tunnelEnds {
		packet, _ := longTunnelPacket(t, newTunnelSegment(t, f), 1400)
		first := piecesOf(t, packet, 1300)[0]
		header := vxlanOf(f) - frame.UDPLen
		if f == IP6 {
			header += frame.FragmentLen
		}
		for length := range frame.UDPLen {
			s := newTunnelSegment(t, f)
			raw := slices.Clone(first[:header+length])
			if f == IP4 {
				raw[16] = 0
				raw[17] = byte(len(raw) - frame.EthernetLen)
				fixIPv4Checksum(raw)
			} else {
				frame.IPv6(raw[frame.EthernetLen:]).SetWhole()
			}
			if seen := s.receiveAll(raw); len(seen) != 0 {
				t.Errorf("IPv%d, %d bytes: %d frames", f, length, len(seen))
			}
		}
	}
}

func TestBadFragmentsOfTunnelPacketsAreRefused(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	packet, _ := longTunnelPacket(t, s, 1400)
	pieces := piecesOf(t, packet, 576)
	other := piecesOf(t, packet, 300)
	odd := slices.Clone(pieces[0][:len(pieces[0])-3])
	odd[17] -= 3
	fixIPv4Checksum(odd)
	late := slices.Clone(pieces[2])
	late[20] |= 0x1f // the offset: the packet exceeds all limits
	fixIPv4Checksum(late)
	second := slices.Clone(pieces[2])
	second[17] -= 8
	fixIPv4Checksum(second)
	for rule, in := range map[string][][]byte{
		"overlap":                   {pieces[0], other[1], pieces[1], pieces[2]},
		"length that is not of 8":   {odd, pieces[1], pieces[2]},
		"behind the longest packet": {pieces[0], late, pieces[1], pieces[2]},
		"two ends":                  {pieces[2], second[:len(second)-8], pieces[0], pieces[1]},
	} {
		t.Run(rule, func(t *testing.T) {
			s := newTunnelSegment(t, IP4)
			if seen := s.receiveAll(in...); len(seen) != 0 {
				t.Errorf("%d frames", len(seen))
			}
			if n := s.engine.Drops()["vxlan4-input/bad fragment of a tunnel packet"]; n == 0 {
				t.Errorf("drops %v", s.engine.Drops())
			}
		})
	}
	s = newTunnelSegment(t, IP4)
	tiny := piecesOf(t, packet, 68)
	if seen := s.receiveAll(tiny...); len(tiny) <= maxTunnelPieces || len(seen) != 0 {
		t.Errorf("%d fragments became %d frames", len(tiny), len(seen))
	}
}

// A packet that lost a fragment must not be completed by one of a later packet with the same identification.
func TestFragmentsOfTunnelPacketsThatComeLateAreNotJoined(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	now := time.Minute
	s.worker.stopwatch = func() time.Duration { return now }
	packet, _ := longTunnelPacket(t, s, 1400)
	pieces := piecesOf(t, packet, 1300)
	s.receiveAll(pieces[0])
	now += fragmentsWait
	if seen := s.receiveAll(pieces[1]); len(seen) != 0 {
		t.Errorf("%d frames", len(seen))
	}
	if drops := s.engine.Drops(); drops["vxlan4-input/fragments of a tunnel packet missing"] != 1 {
		t.Errorf("drops %v", drops)
	}
}

// The worker holds a bounded number of packets, and one end of tunnels displaces only its own.
func TestFloodOfTunnelFragmentsConcernsItsSenderOnly(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	flooder := tunnelTo(IP4)
	flooder.Destination = netip.AddrPortFrom(flooder.Destination.Addr().Next(), flooder.Destination.Port())
	s.set(tunnelIndex+1, Interface{Up: true, MTU: 1400, MAC: frame.MAC{2, 0, 0, 0, 0, 9}, Tunnel: flooder})
	s.engine.Publish()
	packet, inner := longTunnelPacket(t, s, 1400)
	pieces := piecesOf(t, packet, 1300)
	s.receiveAll(pieces[0])
	flood := slices.Clone(pieces[0])
	flood[29] = flooder.Destination.Addr().As4()[3]
	for id := range uint16(1000) {
		s.receiveAll(numbered(flood, id))
	}
	held := 0
	for n := range s.worker.vtep.fragments.held {
		if s.worker.vtep.fragments.held[n].deadline != 0 {
			held++
		}
	}
	if held != heldOfPeer+1 {
		t.Errorf("%d packets are held, want %d of the flooder and one", held, heldOfPeer)
	}
	if seen := s.receiveAll(pieces[1]); len(seen) != 1 || !bytes.Equal(seen[0].raw, inner) {
		t.Errorf("%d frames, drops %v", len(seen), s.engine.Drops())
	}
}

// A kernel behind a redirect gets the fragments of its own UDP packets, in any order, and none of a tunnel packet whose
// first fragment came first. Only ends of tunnels can fill the worker's memory.
func TestFragmentsOfOtherPacketsPass(t *testing.T) {
	s := newRedirectSegment(t, IP4, true)
	packet, _ := longTunnelPacket(t, newTunnelSegment(t, IP4), 1400)
	redirected := func(raw ...[]byte) int {
		return len(slices.DeleteFunc(s.receiveAll(raw...), func(d delivery) bool { return d.on != 3 }))
	}
	tunnelled := piecesOf(t, packet, 576)
	if n := redirected(tunnelled[:2]...); n != 0 {
		t.Errorf("%d fragments of a tunnel packet passed", n)
	}
	other := slices.Clone(packet)
	other[36] = 0
	other[37] = 53
	foreign := piecesOf(t, other, 576)
	for n := range foreign {
		foreign[n] = numbered(foreign[n], 77)
	}
	if n := redirected(foreign...); n != 3 {
		t.Errorf("%d of 3 fragments passed, drops %v", n, s.engine.Drops())
	}
	if n := redirected(numbered(foreign[2], 78), numbered(foreign[0], 78), numbered(foreign[1], 78)); n != 3 {
		t.Errorf("%d of 3 fragments in another order passed, drops %v", n, s.engine.Drops())
	}
	stranger := slices.Clone(tunnelled[0])
	stranger[29] = 99
	if n := redirected(numbered(stranger, 79)); n != 1 {
		t.Errorf("%d fragments of a host without a tunnel passed", n)
	}
}

// A kernel receives datagrams of up to 64 KiB, in any order, and many at once.
func TestFragmentsOfLongDatagramsOfTheKernelPass(t *testing.T) {
	datagram := tunnelPacket(make([]byte, 20000))
	datagram[36] = 0
	datagram[37] = 53
	fixIPv4Checksum(datagram)
	pieces := piecesOf(t, datagram, 1500)
	passed := func(raw ...[]byte) int {
		s := newRedirectSegment(t, IP4, true)
		return len(slices.DeleteFunc(s.receiveAll(raw...), func(d delivery) bool { return d.on != 3 }))
	}
	if n := passed(pieces...); n != len(pieces) {
		t.Errorf("%d of %d fragments passed", n, len(pieces))
	}
	backwards := slices.Clone(pieces)
	slices.Reverse(backwards)
	if n := passed(backwards...); n != len(pieces) {
		t.Errorf("backwards, %d of %d fragments passed", n, len(pieces))
	}
	var interleaved [][]byte
	for _, piece := range pieces {
		for id := range uint16(2 * heldOfPeer) {
			interleaved = append(interleaved, numbered(piece, 100+id))
		}
	}
	if n := passed(interleaved...); n != len(interleaved) {
		t.Errorf("of many datagrams, %d of %d fragments passed", n, len(interleaved))
	}
}

func TestReassemblyAllocatesNothing(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	packet, _ := longTunnelPacket(t, s, 1400)
	pieces := piecesOf(t, packet, 1300)
	for _, p := range s.ports {
		p.show = nil
	}
	p := s.ports[uplinkIndex]
	if n := allocations(100, func() {
		for _, raw := range pieces {
			p.frame = raw
			for p.waiting = 1; p.waiting > 0; {
				s.worker.round()
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
}

// Workers that send to the same node at once must not use the same identifications, also after these begin again.
func TestWorkersUseDifferentIdentifications(t *testing.T) {
	for _, workers := range []int{1, 2, 3} {
		e, err := New(Config{Workers: workers})
		must(t, err)
		t.Cleanup(func() { close(e.stopped); e.free() })
		usedBy := make(map[uint16]int)
		for id, w := range e.workers {
			for range 1 << 16 {
				n := w.vtep.nextID()
				if other, used := usedBy[n]; used && other != id {
					t.Fatalf("of %d workers, %d and %d use %d", workers, other, id, n)
				}
				usedBy[n] = id
			}
		}
		if len(usedBy) < 1<<16-workers {
			t.Errorf("%d workers use %d identifications", workers, len(usedBy))
		}
	}
}
