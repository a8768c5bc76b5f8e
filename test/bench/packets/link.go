package packets

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weftnet/weft/memif"
)

// link is a pair of clients that one thread uses.
type link struct {
	ends [2]*memif.Conn
	room [burst]memif.Packet
}

// burst is the number of packets that are sent or received at a time.
const burst = 256

func (l *link) close() {
	for _, c := range l.ends {
		if c != nil {
			c.Release()
		}
	}
}

const (
	flows      = 256 // destinations of frames
	clientPort = 1001
)

// frame builds a frame of a flow, from the i-th client.
func (w memifPair) frame(i, flow, size int) ([]byte, error) {
	from := peer(w.ids[i])
	to := w.next(i)
	address := destinations.Addr().As4()
	binary.BigEndian.PutUint16(address[2:], uint16(flow))
	ethernet := &layers.Ethernet{
		SrcMAC:       net.HardwareAddr(from[:]),
		DstMAC:       net.HardwareAddr(to[:]),
		EthernetType: layers.EthernetTypeIPv4,
	}
	ip := &layers.IPv4{
		Version:  4,
		TTL:      64,
		Protocol: layers.IPProtocolUDP,
		SrcIP:    net.IPv4(10, 254, 0, 1),
		DstIP:    netip.AddrFrom4(address).AsSlice(),
	}
	udp := &layers.UDP{SrcPort: 1000, DstPort: clientPort}
	if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
		return nil, err
	}
	b := gopacket.NewSerializeBuffer()
	payload := gopacket.Payload(make([]byte, size-14-20-8))
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ethernet,
		ip, udp, payload)
	return b.Bytes(), err
}

// fill writes a frame into each slot of both transmit rings and sends it: a client's buffer stays with its slot, and no
// other process writes into it, so later rounds only send the slots. The bridge learns the MACs from these frames.
func (l *link) fill(w memifPair, size int) error {
	if err := l.write(w, size); err != nil {
		return err
	}
	l.quiet()
	return nil
}

// write is fill that does not wait for the frames' arrival.
func (l *link) write(w memifPair, size int) error {
	for i, c := range l.ends {
		q := c.TxQueues()[0]
		for sent := 0; sent < q.Size(); {
			f, err := w.frame(i, sent%flows, size)
			if err != nil {
				return err
			}
			if q.Append(f) {
				sent++
			}
			if sent%64 == 0 {
				q.Flush()
				l.drain()
			}
			if c.Err() != nil {
				return c.Err()
			}
		}
		q.Flush()
	}
	return nil
}

// quietTime is how long other processes may keep a worker from its processor.
const quietTime = 500 * time.Millisecond

// quiet receives packets in flight until no more arrive.
func (l *link) quiet() (taken int) {
	for last := time.Now(); time.Since(last) < quietTime; {
		if n := l.drain(); n > 0 {
			taken += n
			last = time.Now()
		}
	}
	return taken
}

// send sends the next n frames of the i-th client, or none without space for all: a sender that fills single slots as
// the dataplane frees them contends with it for the same cache lines.
func (l *link) send(i, n, size int) bool {
	q := l.ends[i].TxQueues()[0]
	if q.Free() < n {
		return false
	}
	for range n {
		if q.Reserve(size) == nil {
			return false
		}
		q.Commit(size)
	}
	q.Flush()
	return true
}

// take receives the i-th client's packets without reading them.
func (l *link) take(i int) int {
	q := l.ends[i].RxQueues()[0]
	n := q.Peek(l.room[:])
	q.Release()
	return n
}

func (l *link) drain() int {
	return l.take(0) + l.take(1)
}
