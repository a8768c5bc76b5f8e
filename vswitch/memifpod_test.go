package vswitch

import (
	"bytes"
	"context"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifPod is a program with its own address behind a memif. It answers ARP and echo requests, and sends echo requests.
type memifPod struct {
	conn    *memif.Conn
	mac     frame.MAC
	own     netip.Addr
	bare    bool
	pings   byte // number of pings started
	stopped sync.WaitGroup
	cancel  context.CancelFunc

	mu       sync.Mutex // guards the fields below, and the transmit queue
	resolved map[netip.Addr]frame.MAC
	answers  chan answer
}

// answer is an echo reply: its length and its payload byte.
type answer struct {
	length int
	data   byte
}

// memifSocket registers a socket in a directory of the test.
func memifSocket(t *testing.T, conn govpp.Connection, id uint32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memif.sock")
	if _, err := binapi.NewServiceClient(conn).MemifSocketFilenameAddDelV2(t.Context(),
		&binapi.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: id, SocketFilename: path}); err != nil {
		t.Fatal("add memif socket:", err)
	}
	return path
}

// addMemif adds a memif and sets it up.
func addMemif(t *testing.T, conn govpp.Connection, c binapi.MemifCreateV2) interface_types.InterfaceIndex {
	t.Helper()
	reply, err := binapi.NewServiceClient(conn).MemifCreateV2(t.Context(), &c)
	if err != nil {
		t.Fatal("create memif:", err)
	}
	setUp(t, conn, reply.SwIfIndex)
	return reply.SwIfIndex
}

// runMemifPod connects and serves until the test ends or stop is called.
func runMemifPod(t *testing.T, c memif.ClientConfig, own string) *memifPod {
	t.Helper()
	conn, err := memif.Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	p := &memifPod{conn: conn, own: netip.MustParseAddr(own), bare: c.Mode == memif.IP,
		resolved: map[netip.Addr]frame.MAC{}, answers: make(chan answer, 64)}
	last := p.own.As4()
	p.mac = frame.MAC{2, 0, 0, 0, 0x77, last[3]}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.stopped.Go(func() { p.serve(ctx) })
	t.Cleanup(p.stop)
	return p
}

func (p *memifPod) stop() {
	p.cancel()
	p.stopped.Wait()
	p.conn.Release()
}

// serve waits on the queue and answers packets.
func (p *memifPod) serve(ctx context.Context) {
	w, err := memif.NewWaiter()
	if err != nil {
		return
	}
	defer w.Close()
	q := p.conn.RxQueues()[0]
	if err := w.Add(q); err != nil {
		return
	}
	defer w.Remove(q)
	buffer := [][]byte{make([]byte, 72<<10)}
	for ctx.Err() == nil {
		for q.Receive(buffer) > 0 {
			p.take(buffer[0])
			buffer[0] = buffer[0][:cap(buffer[0])]
		}
		if !q.Arm() {
			_ = w.Wait(ctx)
		}
		q.Disarm()
		w.Clear()
	}
}

func (p *memifPod) send(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bare {
		b = b[frame.EthernetLen:]
	}
	p.conn.TxQueues()[0].Send([][]byte{b})
}

func (p *memifPod) take(b []byte) {
	if p.bare {
		b = append(make([]byte, frame.EthernetLen, len(b)+frame.EthernetLen), b...)
		frame.PutEthernet(b, frame.MAC{}, frame.MAC{}, frame.TypeIPv4)
	}
	e, err := frame.ParseEthernet(b)
	if err != nil {
		return
	}
	switch e.Type() {
	case frame.TypeARP:
		p.arp(b[frame.EthernetLen:])
	case frame.TypeIPv4:
		p.icmp(b, e.Source())
	}
}

func (p *memifPod) arp(b []byte) {
	a, err := frame.ParseARP(b)
	if err != nil || a.Target() != p.own {
		return
	}
	p.mu.Lock()
	p.resolved[a.Sender()] = a.SenderMAC()
	p.mu.Unlock()
	if a.Operation() == frame.ARPRequest {
		p.sendARP(frame.ARPReply, a.SenderMAC(), a.Sender())
	}
}

func (p *memifPod) sendARP(operation uint16, to frame.MAC, target netip.Addr) {
	b := make([]byte, frame.EthernetLen+frame.ARPLen)
	frame.PutEthernet(b, to, p.mac, frame.TypeARP)
	frame.PutARP(b[frame.EthernetLen:], frame.ARPFields{
		Operation: operation,
		SenderMAC: p.mac,
		TargetMAC: to,
		Sender:    p.own,
		Target:    target,
	})
	p.send(b)
}

// icmp turns a request into its reply, and records replies.
func (p *memifPod) icmp(b []byte, from frame.MAC) {
	ip, err := frame.ParseIPv4(b[frame.EthernetLen:])
	if err != nil || ip.Protocol() != frame.ProtocolICMP || ip.Destination() != p.own || !ip.ChecksumValid() {
		return
	}
	m, err := frame.ParseICMP(ip.Payload())
	if err != nil || !m.ChecksumValid(0) {
		return
	}
	switch m.Type() {
	case frame.ICMPEchoReply:
		select {
		case p.answers <- answer{len(ip), m[frame.ICMPLen]}:
		default:
		}
	case frame.ICMPEcho:
		p.send(p.echo(frame.ICMPEchoReply, from, ip.Source(), m[frame.ICMPLen:]))
	}
}

func (p *memifPod) echo(kind uint8, mac frame.MAC, to netip.Addr, data []byte) []byte {
	b := make([]byte, frame.EthernetLen+frame.IPv4Len+frame.ICMPLen+len(data))
	frame.PutEthernet(b, mac, p.mac, frame.TypeIPv4)
	frame.PutIPv4(b[frame.EthernetLen:], frame.IPFields{
		TTL:         64,
		Protocol:    frame.ProtocolICMP,
		Source:      p.own,
		Destination: to,
		PayloadLen:  frame.ICMPLen + len(data),
	})
	m := frame.ICMP(b[frame.EthernetLen+frame.IPv4Len:])
	m.SetType(kind, 0)
	copy(m[frame.ICMPLen:], data)
	m.PutChecksum(0)
	return b
}

// ping resolves via and sends echo requests of size bytes through it until one is answered. It reports whether the
// reply is complete. Late replies to an earlier ping have another payload.
func (p *memifPod) ping(to, via string, size int) bool {
	target := netip.MustParseAddr(to)
	gateway := netip.MustParseAddr(via)
	p.pings++
	data := bytes.Repeat([]byte{p.pings}, size)
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for over := time.After(time.Minute); ; {
		p.mu.Lock()
		mac, known := p.resolved[gateway]
		p.mu.Unlock()
		if known || p.bare {
			p.send(p.echo(frame.ICMPEcho, mac, target, data))
		} else {
			p.sendARP(frame.ARPRequest, frame.Broadcast, gateway)
		}
		select {
		case a := <-p.answers:
			if a.data == p.pings {
				return a.length == frame.IPv4Len+frame.ICMPLen+size
			}
		case <-again.C:
		case <-over:
			return false
		}
	}
}
