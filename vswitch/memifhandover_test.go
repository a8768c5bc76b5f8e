package vswitch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifStream is a stream of numbered frames from one memif client to another one.
type memifStream struct {
	from, to *memif.Conn
	sent     int
	received int
	reorders int // frames with a number that is not larger than all before
	last     int // number of the last frame
	latest   time.Time
	gap      time.Duration
	full     int // attempts to send into a full ring
}

// memifStreams are streams at a steady rate.
type memifStreams struct {
	all     []*memifStream
	arrived atomic.Int64 // of the last stream
}

// streamFrame is a frame of a stream with a number.
func streamFrame(stream, n int) []byte {
	b := make([]byte, 100)
	// for local experiments
	frame.PutEthernet(b, frame.MAC{2, 2, 0, 0, 0, byte(stream)}, frame.MAC{2, 1, 0, 0, 0, byte(stream)}, 0x88b5)
	binary.BigEndian.PutUint64(b[frame.EthernetLen:], uint64(n))
	return b
}

// during streams frames while f runs and a little longer, until all have arrived or none has for a second.
func (s *memifStreams) during(t *testing.T, interval time.Duration, f func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var both sync.WaitGroup
	sent := make(chan struct{})
	both.Go(func() {
		defer close(sent)
		s.send(ctx, interval)
	})
	both.Go(func() { s.receive(sent, interval) })
	eventually(t, func() bool { return s.arrived.Load() > 20 })
	f()
	after := s.arrived.Load()
	eventually(t, func() bool { return s.arrived.Load() > after+50 })
	stop()
	both.Wait()
}

// send sends one frame per interval on each stream.
func (s *memifStreams) send(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for begun := time.Now(); ctx.Err() == nil; <-tick.C {
		due := int(time.Since(begun) / interval)
		for n, one := range s.all {
			for one.sent < due {
				if one.from.TxQueues()[0].Send([][]byte{streamFrame(n, one.sent)}) == 0 {
					one.full++
					break
				}
				one.sent++
			}
		}
	}
}

func (s *memifStreams) receive(sent <-chan struct{}, interval time.Duration) {
	tick := time.NewTicker(interval / 4)
	defer tick.Stop()
	buffer := [][]byte{make([]byte, 2048)}
	ended := false
	latest := time.Now()
	for {
		missing := 0
		for _, one := range s.all {
			for one.to.RxQueues()[0].Receive(buffer) > 0 {
				latest = time.Now()
				one.take(int(binary.BigEndian.Uint64(buffer[0][frame.EthernetLen:])), latest)
				buffer[0] = buffer[0][:cap(buffer[0])]
			}
		}
		s.arrived.Store(int64(s.all[len(s.all)-1].received))
		if ended {
			for _, one := range s.all {
				missing += one.sent - one.received
			}
			if missing == 0 || time.Since(latest) > time.Second {
				return
			}
		}
		select {
		case <-sent:
			sent = nil
			ended = true
		case <-tick.C:
		}
	}
}

func (s *memifStream) take(n int, now time.Time) {
	if !s.latest.IsZero() {
		s.gap = max(s.gap, now.Sub(s.latest))
	}
	if s.received > 0 && n <= s.last {
		s.reorders++
	}
	s.last = n
	s.latest = now
	s.received++
}

// check fails the test if a frame was lost, repeated or reordered, and prints the figures.
func (s *memifStreams) check(t *testing.T) {
	t.Helper()
	var sent, lost, full int
	var gap time.Duration
	for n, one := range s.all {
		sent = sent + one.sent
		lost = lost + one.sent - one.received
		full = full + one.full
		gap = max(gap, one.gap)
		if one.received != one.sent || one.reorders > 0 || one.last != one.sent-1 {
			t.Errorf("stream %d: %d of %d frames lost, %d reordered, the last is %d", n, one.sent-one.received,
				one.sent, one.reorders, one.last)
		}
	}
	t.Logf("%d streams: %d of %d frames lost, %d attempts at a full ring, longest gap %s", len(s.all), lost, sent, full,
		gap.Round(time.Millisecond/10))
}

// memifPairs makes pairs of memifs, each in a bridge domain of its own, and connects a client to each memif.
func memifPairs(t *testing.T, api govpp.Connection, pairs int) (conns [][2]*memif.Conn) {
	t.Helper()
	path := memifSocket(t, api, 3)
	for n := range uint32(pairs) {
		addBridge(t, api, n+1)
		var pair [2]*memif.Conn
		for end := range uint32(2) {
			id := 2*n + end
			index := addMemif(t, api, binapi.MemifCreateV2{SocketID: 3, ID: id, Secret: string(memifSecret)})
			join(t, api, l2.SwInterfaceSetL2Bridge{RxSwIfIndex: index, BdID: n + 1})
			conn, err := memif.Connect(t.Context(), memif.ClientConfig{Socket: path, ID: id, Secret: memifSecret})
			must(t, err)
			t.Cleanup(conn.Release)
			pair[end] = conn
		}
		meet(t, pair[0], pair[1])
		conns = append(conns, pair)
	}
	return conns
}

// meet returns when the dataplane forwards from one memif to another: it does so a little later than the clients are
// connected.
func meet(t *testing.T, from, to *memif.Conn) {
	t.Helper()
	sent := 0
	last := time.Time{}
	buffer := [][]byte{make([]byte, 2048)}
	eventually(t, func() bool {
		if time.Since(last) > 100*time.Millisecond {
			sent++
			last = time.Now()
			_ = from.TxQueues()[0].Send([][]byte{streamFrame(0, sent)})
		}
		for to.RxQueues()[0].Receive(buffer) > 0 { // after the first frame that arrives all do, in their order
			if int(binary.BigEndian.Uint64(buffer[0][frame.EthernetLen:])) == sent {
				return true
			}
			buffer[0] = buffer[0][:cap(buffer[0])]
		}
		return false
	})
}

// patience is the time that tests give a handover: the machine may be busy, and some of these tests make much load.
const patience = 20 * time.Second

func patient(t *testing.T) {
	before := handoverTimeout
	t.Cleanup(func() { handoverTimeout = before })
	handoverTimeout = patience
}

func checkConnected(t *testing.T, conns [][2]*memif.Conn) {
	t.Helper()
	for n, pair := range conns {
		if err := errors.Join(pair[0].Err(), pair[1].Err()); err != nil {
			t.Errorf("pair %d was disconnected: %v", n, err)
		}
	}
}

// The clients of memifs notice nothing of a handover: their connections stay, and no frame is lost, repeated or
// reordered. The rings hold the frames of more than a second.
func TestHandoverKeepsMemifConnections(t *testing.T) {
	netnstest.Require(t)
	for name, c := range map[string]struct {
		pairs    int
		interval time.Duration
	}{"two memifs": {1, time.Millisecond}, "fifty memifs": {25, 5 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			patient(t)
			active := start(t)
			conns := memifPairs(t, active.connect(t), c.pairs)
			for round := range 3 {
				next := fmt.Sprintf("next%d", round)
				standby := startHeir(t, active.socket, next)
				var streams memifStreams
				for _, pair := range conns {
					streams.all = append(streams.all, &memifStream{from: pair[round%2], to: pair[(round+1)%2]})
				}
				streams.during(t, c.interval, func() {
					active.stop()
					becomesActive(t, active.socket, next)
				})
				streams.check(t)
				active = standby
			}
			checkConnected(t, conns)
			if n := linksUp(t, active.connect(t)); n != 2*c.pairs {
				t.Errorf("%d memifs are up", n)
			}
		})
	}
}

// linksUp returns the number of memifs whose link is up, because a client is connected.
func linksUp(t *testing.T, api govpp.Connection) (n int) {
	t.Helper()
	dump, err := binapi.NewServiceClient(api).MemifDump(t.Context(), &binapi.MemifDump{})
	must(t, err)
	for {
		d, err := dump.Recv()
		if err != nil {
			return n
		}
		if d.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0 {
			n++
		}
	}
}

// dataplaneProcess is a dataplane with a memif broker in a process of its own.
type dataplaneProcess struct {
	*exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	log []string
}

// startProcess starts a dataplane; with a name it is a standby.
func startProcess(t *testing.T, socket, name string) *dataplaneProcess {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &dataplaneProcess{Cmd: exec.Command(self), ended: make(chan struct{})}
	p.Env = append(os.Environ(), apiSocketEnv+"="+socket, standbyEnv+"="+name, brokerEnv+"=1")
	p.Stdout = nil
	p.Stderr = writer(func(lines string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.log = append(p.log, strings.Split(strings.TrimSpace(lines), "\n")...)
	})
	must(t, p.Start())
	go func() {
		defer close(p.ended)
		_ = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%q:\n%s", name, strings.Join(p.log, "\n"))
		}
	})
	return p
}

// says waits for a line of the log and returns it.
func (p *dataplaneProcess) says(t *testing.T, text string) (line string) {
	t.Helper()
	eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line = range p.log {
			if strings.Contains(line, text) {
				return true
			}
		}
		return false
	})
	return line
}

func connectTo(t *testing.T, socket string) govpp.Connection {
	t.Helper()
	return (&running{socket: socket}).connect(t)
}

// The same between processes, whose brokers hold the sockets of the clients.
func TestHandoverBetweenProcessesKeepsMemifConnections(t *testing.T) {
	netnstest.Require(t)
	socket := t.TempDir() + "/api.sock"
	active := startProcess(t, socket, "")
	active.says(t, "dataplane ready")
	const pairs = 25
	conns := memifPairs(t, connectTo(t, socket), pairs)
	for round := range 3 {
		next := fmt.Sprintf("next%d", round)
		standby := startProcess(t, socket, next)
		standby.says(t, "ready for a handover")
		var streams memifStreams
		for _, pair := range conns {
			streams.all = append(streams.all, &memifStream{from: pair[round%2], to: pair[(round+1)%2]})
		}
		streams.during(t, 5*time.Millisecond, func() {
			must(t, active.Process.Signal(syscall.SIGTERM))
			becomesActive(t, socket, next)
			<-active.ended
		})
		streams.check(t)
		t.Log(active.says(t, "handed over"))
		active = standby
	}
	checkConnected(t, conns)
	// The brokers that got the clients handed over serve them.
	api := connectTo(t, socket)
	if n := linksUp(t, api); n != 2*pairs {
		t.Errorf("%d memifs are connected", n)
	}
	conns[0][0].Close()
	eventually(t, func() bool { return linksUp(t, api) == 2*pairs-1 })
}

// A standby that is killed when it has received everything, and before it can say so, takes the connections of memifs
// with it: the clients are disconnected, and connect to the next dataplane.
func TestMemifClientsReconnectIfTheStandbyIsKilledDuringTheHandover(t *testing.T) {
	netnstest.Require(t)
	socket := t.TempDir() + "/api.sock"
	active := startProcess(t, socket, "")
	active.says(t, "dataplane ready")
	conns := memifPairs(t, connectTo(t, socket), 2)
	standby := startProcess(t, socket, "next")
	standby.says(t, "ready for a handover")
	must(t, standby.Process.Signal(syscall.SIGSTOP))
	must(t, active.Process.Signal(syscall.SIGTERM))
	active.says(t, "dataplane stopping")
	// The active dataplane waits for the standby.
	select {
	case <-active.ended:
		t.Fatal("the dataplane does not wait")
	case <-time.After(100 * time.Millisecond):
	}
	for _, pair := range conns {
		if err := errors.Join(pair[0].Err(), pair[1].Err()); err != nil {
			t.Error("disconnected before the standby ended:", err)
		}
	}
	must(t, standby.Process.Kill())
	active.says(t, "handover failed")
	<-active.ended
	for _, pair := range conns {
		<-pair[0].Gone()
		<-pair[1].Gone()
	}
	last := startProcess(t, socket, "")
	last.says(t, "dataplane ready")
	again := memifPairs(t, connectTo(t, socket), 1)
	var streams memifStreams
	streams.all = append(streams.all, &memifStream{from: again[0][0], to: again[0][1]})
	streams.during(t, time.Millisecond, func() {})
	streams.check(t)
}
