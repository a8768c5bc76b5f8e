package forward

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/frame"
)

// memorySocket is a socket without a machine.
type memorySocket struct {
	*memoryPort
	from  netip.Addr
	local netip.AddrPort
	size  int // of the datagrams in what it receives
	err   error
}

func (m *memorySocket) Sender(int) (netip.Addr, int) { return m.from, m.size }
func (m *memorySocket) Local() netip.AddrPort        { return m.local }

func (m *memorySocket) Transmit(v []*frame.Buffer) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	return m.memoryPort.Transmit(v)
}

// addSocket lets the tests' tunnel be carried by a socket; its frames are seen on interface firstSocket.
func (s *segment) addSocket(f Family) *memorySocket {
	s.tb.Helper()
	k, c := s.engine.keeper, tunnelTo(f)
	m := &memorySocket{from: c.Destination.Addr(), local: c.Source}
	var err error
	m.memoryPort, err = newMemoryPort()
	must(s.tb, err)
	m.show = func(raw []byte, v frame.Virtio) { s.seen = append(s.seen, delivery{firstSocket, slices.Clone(raw), v}) }
	s.ports[firstSocket] = m.memoryPort
	p := &keptPort{source: c.Source, pause: firstPause, users: []uint32{tunnelIndex}, open: func() (vectorPort, error) { return m, nil }}
	k.mu.Lock()
	k.kept[firstSocket], k.joined[tunnelIndex] = p, firstSocket
	err = k.attachLocked(firstSocket, p)
	k.mu.Unlock()
	must(s.tb, err)
	s.set(tunnelIndex, Interface{Up: true, MTU: 1400, Tunnel: c})
	s.engine.Publish()
	return m
}

func TestASocketCarriesTheTunnel(t *testing.T) {
	for f := range tunnelEnds {
		s := newTunnelSegment(t, f)
		m := s.addSocket(f)
		inner := between(host(1), host(9))
		sent := s.receive(1, inner, frame.Virtio{})
		if len(sent) != 1 || sent[0].on != firstSocket {
			t.Fatalf("%+v, drops %v", sent, s.engine.Drops())
		}
		// What comes to the address by an interface is not the socket's.
		datagram := sent[0].raw[vxlanOf(f)-frame.EthernetLen:]
		if back := s.receive(firstSocket, datagram, frame.Virtio{}); len(back) != 1 || back[0].on != 1 || !bytes.Equal(back[0].raw, inner) {
			t.Errorf("%+v, drops %v", back, s.engine.Drops())
		}
		m.size = len(datagram)
		three := slices.Concat(datagram, datagram, datagram[:40])
		if back := s.receive(firstSocket, three, frame.Virtio{}); len(back) != 3 || len(back[2].raw) != 32 {
			t.Errorf("a bundle of three came as %+v", back)
		}
		m.from = m.from.Next()
		if back := s.receive(firstSocket, datagram, frame.Virtio{}); len(back) != 0 || s.engine.Drops()["vxlan4-input/no such tunnel packets"] != 1 {
			t.Errorf("from another: %+v, drops %v", back, s.engine.Drops())
		}
		if lines := s.engine.ports.Load().at(firstSocket).inlets[0].trace.last(1); lines[0].result.drop != dropNoTunnel {
			t.Errorf("trace %+v", lines)
		}
	}
}

func TestABrokenSocketIsToldOfForAllItCarriesAndTriedAgain(t *testing.T) {
	s := newTunnelSegment(t, IP4)
	m := s.addSocket(IP4)
	k := s.engine.keeper
	k.kept[firstSocket].users = append(k.kept[firstSocket].users, 7)
	m.err = unix.EADDRNOTAVAIL
	s.receive(1, between(host(1), host(9)), frame.Virtio{})
	now := time.Now()
	s.served(func() { k.inspect(now) })
	for _, index := range []uint32{tunnelIndex, 7} {
		if ev := <-s.engine.events; ev.Kind != PortDown || ev.Interface != index || !errors.Is(ev.Err, m.err) {
			t.Fatalf("%+v", ev)
		}
	}
	s.receive(1, between(host(1), host(9)), frame.Virtio{})
	if s.engine.Drops()["interface-output/interface is deleted"] != 1 {
		t.Errorf("drops %v", s.engine.Drops())
	}
	m.err = nil
	m.event, _ = unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	s.served(func() { k.inspect(now.Add(2 * firstPause)) })
	for _, index := range []uint32{tunnelIndex, 7} {
		if ev := <-s.engine.events; ev.Kind != PortUp || ev.Interface != index {
			t.Fatalf("%+v", ev)
		}
	}
	if sent := s.receive(1, between(host(1), host(9)), frame.Virtio{}); len(sent) != 1 {
		t.Errorf("drops %v", s.engine.Drops())
	}
}

func TestTunnelsShareASocketUntilTheLastGoes(t *testing.T) {
	s := newSegment(t)
	k, source := s.engine.keeper, netip.MustParseAddrPort("127.0.0.9:4789")
	for _, index := range []uint32{20, 21} {
		if up, err := s.engine.OpenTunnel(index, source); err != nil || !up {
			t.Fatal(index, up, err)
		}
	}
	if _, err := s.engine.OpenTunnel(20, source); !errors.Is(err, ErrPortExists) {
		t.Errorf("a second socket for a tunnel: %v", err)
	}
	if up, err := s.engine.OpenTunnel(22, netip.MustParseAddrPort("192.0.2.77:4789")); err != nil || up {
		t.Errorf("an address that the machine has not: %t, %v", up, err)
	}
	if k.socketOf(20) != k.socketOf(21) || k.socketOf(20) == k.socketOf(22) || !k.hasNews() {
		t.Error("sockets are not shared by address, or the keeper does not know what waits")
	}
	for _, index := range []uint32{20, 21, 22} {
		s.served(func() { must(t, s.engine.ClosePort(index)) })
	}
	if len(k.joined) != 0 || len(k.kept) != segmentPorts || s.engine.ports.Load().at(firstSocket) != nil {
		t.Errorf("left behind: %v", k.joined)
	}
	if err := s.engine.ClosePort(20); !errors.Is(err, ErrNoPort) {
		t.Errorf("closed twice: %v", err)
	}
}

// FuzzEnvelope lets anything come to a tunnel's port, by routes and by a socket. What comes out is a whole frame of what
// went in, and no buffer is lost.
func FuzzEnvelope(f *testing.F) {
	good := append([]byte{8, 0, 0, 0, 0x12, 0x34, 0x56, 0}, between(host(1), host(9))...)
	f.Add(good, uint16(0), false, uint8(0), uint16(0), uint16(0), uint16(0))
	f.Add(slices.Concat(good, good, good), uint16(len(good)), true, uint8(0), uint16(0), uint16(0), uint16(0))
	f.Add(slices.Concat(good, good, good), uint16(0), false, uint8(frame.GSOUDP), uint16(34), uint16(6), uint16(len(good)))
	f.Add(append(good[:8:8], udp4("10.2.7.7", 1000)...), uint16(0), false, uint8(frame.GSOUDP), uint16(84), uint16(6), uint16(100))
	f.Add(append(good[:8:8], udp4("192.0.2.1", 1000)...), uint16(9), true, uint8(0), uint16(84), uint16(6), uint16(100))
	bySocket, byRoute := newTunnelSegment(f, IP4), newTunnelSegment(f, IP4)
	socket := bySocket.addSocket(IP4)
	f.Fuzz(func(t *testing.T, payload []byte, size uint16, sockets bool, gso uint8, start, offset, gsoSize uint16) {
		if len(payload) > 60000 {
			return
		}
		s := byRoute
		var out []delivery
		if sockets {
			s, socket.size = bySocket, max(int(size), 64)
			out = s.receive(firstSocket, payload, frame.Virtio{})
		} else {
			v := frame.Virtio{GSOType: gso, GSOSize: gsoSize, ChecksumStart: start, ChecksumOffset: offset}
			if gso != 0 || offset != 0 {
				v.Flags = frame.VirtioNeedsChecksum
			}
			out = s.receive(uplinkIndex, envelopeOf(payload), v)
		}
		for _, d := range out {
			if d.on == 1 && gso == 0 && !bytes.Contains(payload, d.raw) || len(d.raw) < frame.EthernetLen || !d.virtio.Fits(len(d.raw)) {
				t.Errorf("on %d: %x %+v", d.on, d.raw, d.virtio)
			}
		}
		if s.worker.opening || s.worker.wrapping {
			t.Error("the worker believes that it is in a tunnel")
		}
	})
}

// envelopeOf is a packet from the other end to the tunnel's port.
func envelopeOf(payload []byte) []byte {
	raw := make([]byte, frame.EthernetLen+frame.IPv4Len+frame.UDPLen, 64<<10)
	frame.PutEthernet(raw, portMAC, podMAC, frame.TypeIPv4)
	frame.PutIPv4(raw[14:], frame.IPFields{TTL: 9, Protocol: frame.ProtocolUDP, Source: tunnelEnds[IP4][1], Destination: tunnelEnds[IP4][0],
		PayloadLen: frame.UDPLen + len(payload)})
	raw[36], raw[37], raw[38], raw[39] = 0x12, 0xb5, byte((len(payload)+8)>>8), byte(len(payload)+8)
	return append(raw, payload...)
}
