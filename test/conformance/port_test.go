package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
)

// port is the peer of an interface: it sends frames and captures what the dataplane sends.
type port struct {
	*lab
	name     string
	mac      net.HardwareAddr
	own      string // its IPv4 address
	gateway  string // an address of the dataplane that always answers ARP on this port
	send     func([]byte)
	received <-chan []byte
}

// capturing is the timeout for the answer to a probe.
const capturing = 10 * time.Second

// plug makes a port of a veth's peer.
func (l *lab) plug(name, netns, m string) *port {
	l.Helper()
	p := &port{lab: l, name: name, mac: hw(m)}
	var fd int
	netnstest.Do(l.T, netns, func() {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			l.Fatal(err)
		}
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			l.Fatal(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Index}); err != nil {
			l.Fatal(err)
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			l.Fatal(err)
		}
	})
	p.send = func(frame []byte) {
		if err := unix.Send(fd, frame, 0); err != nil {
			l.Errorf("send by %s: %v", name, err)
		}
	}
	p.received = l.reader(func() ([]byte, error) { return readSocket(fd) }, func() { _ = unix.Close(fd) })
	return p
}

// readSocket reads a frame; nil after a timeout.
func readSocket(fd int) ([]byte, error) {
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20); err != nil || n == 0 {
		if err == unix.EINTR {
			err = nil
		}
		return nil, err
	}
	frame := make([]byte, 1<<16)
	control := make([]byte, 256)
	n, size, _, from, err := unix.Recvmsg(fd, frame, control, 0)
	if err != nil {
		return nil, err
	}
	if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
		return nil, nil
	}
	return withTag(frame[:n], control[:size]), nil
}

// withTag returns a frame with the VLAN tag that the kernel reports beside it.
func withTag(frame, control []byte) []byte {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA ||
			binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tagged := binary.BigEndian.AppendUint16(slices.Clone(frame[:12]), binary.NativeEndian.Uint16(m.Data[18:]))
		tagged = binary.BigEndian.AppendUint16(tagged, binary.NativeEndian.Uint16(m.Data[16:]))
		return append(tagged, frame[12:]...)
	}
	return frame
}

// attach makes a port of a memif client, and waits until the dataplane reports the link as up: earlier packets may be
// lost.
func (l *lab) attach(name, m string, c memif.ClientConfig) *port {
	l.Helper()
	l.watch()
	ctx, cancel := context.WithTimeout(l.Context(), capturing)
	defer cancel()
	client, err := memif.Dial(ctx, c, memif.ClientEvents{})
	if err != nil {
		l.Fatal(err)
	}
	l.events(1)
	p := &port{lab: l, name: name, mac: hw(m)}
	p.send = func(frame []byte) {
		if err := client.WritePacket(l.Context(), frame); err != nil {
			l.Errorf("send by %s: %v", name, err)
		}
	}
	frame := make([]byte, 1<<16)
	p.received = l.reader(func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		n, err := client.ReadPacket(ctx, frame)
		if ctx.Err() != nil {
			return nil, nil
		}
		return bytes.Clone(frame[:n]), err
	}, func() { _ = client.Close() })
	return p
}

// reader reads frames until the test ends.
func (l *lab) reader(read func() ([]byte, error), release func()) <-chan []byte {
	frames := make(chan []byte, 4096)
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			frame, err := read()
			if err != nil {
				return
			}
			if len(frame) > 0 {
				frames <- frame
			}
		}
	}()
	l.Cleanup(func() {
		close(stop)
		<-stopped
		release()
	})
	return frames
}

// sends transmits a frame and records it.
func (p *port) sends(all ...gopacket.SerializableLayer) {
	p.Helper()
	frame := build(all...)
	p.note("%s sends %s", p.name, describe(frame, false))
	p.send(frame)
}

// sendsAll sends frames without a probe between them.
func (p *port) sendsAll(frames [][]byte) {
	p.Helper()
	for _, frame := range frames {
		p.note("%s sends %s", p.name, describe(frame, false))
		p.send(frame)
	}
}

// receives records the frames that the dataplane sent to the port so far. It probes twice: when the second probe is
// answered, the dataplane has handled all frames from before the first one, even if it handles frames in batches.
func (p *port) receives() {
	p.Helper()
	var lines []string
	for range 2 {
		lines = append(lines, p.probe()...)
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		lines = []string{"nothing"}
	}
	for _, line := range lines {
		p.note("%s receives %s", p.name, line)
	}
}

// probe sends an ARP request for the gateway and returns the frames before the reply.
func (p *port) probe() (lines []string) {
	p.Helper()
	p.send(build(arpRequest(p.mac, p.own, p.gateway)...))
	deadline := time.After(capturing)
	for {
		select {
		case frame := <-p.received:
			if p.isAnswer(frame) {
				return lines
			}
			if !background(frame) {
				lines = append(lines, describe(frame, false))
			}
		case <-deadline:
			p.Fatalf("%s: the gateway %s does not answer ARP\n%s", p.name, p.gateway, p.transcript())
		}
	}
}

// next waits for one frame.
func (p *port) next() []byte {
	p.Helper()
	select {
	case frame := <-p.received:
		return frame
	case <-time.After(capturing):
		p.Fatalf("%s receives nothing within %s\n%s", p.name, capturing, p.transcript())
		return nil
	}
}

func (p *port) isAnswer(frame []byte) bool {
	reply, ok := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Lazy).Layer(
		layers.LayerTypeARP).(*layers.ARP)
	return ok && reply.Operation == layers.ARPReply && net.IP(reply.SourceProtAddress).String() == p.gateway &&
		net.IP(reply.DstProtAddress).String() == p.own
}
