package vswitch

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/l2"
	binapi "go.fd.io/govpp/binapi/memif"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/frame"
)

// memifStream is a stream of numbered frames from one memif client to another one, at a steady rate.
type memifStream struct {
	from, to *memif.Conn
	sent     int
	received int
	reorders int
	last     int // number of the last frame received
	gap      time.Duration
	arrived  atomic.Int64
	full     int // frames that found no room in the ring
}

// streamFrame is a frame to a station with a number.
func streamFrame(from, to frame.MAC, n int) []byte {
	b := make([]byte, 100)
	frame.PutEthernet(b, to, from, 0x88b5) // for local experiments
	binary.BigEndian.PutUint64(b[frame.EthernetLen:], uint64(n))
	return b
}

// run sends a frame every interval until ctx ends, and receives until all have arrived or none has for a second.
func (s *memifStream) run(ctx context.Context, number byte, interval time.Duration) {
	a, b := frame.MAC{2, 1, 0, 0, 0, number}, frame.MAC{2, 2, 0, 0, 0, number}
	s.last = -1
	var both sync.WaitGroup
	ended := make(chan struct{})
	both.Go(func() {
		defer close(ended)
		begun := time.Now()
		for ctx.Err() == nil {
			for due := int(time.Since(begun) / interval); s.sent < due; s.sent++ {
				if s.from.TxQueues()[0].Send([][]byte{streamFrame(a, b, s.sent)}) == 0 {
					s.full++
					break
				}
			}
			<-time.After(interval)
		}
	})
	both.Go(func() { s.receive(ended) })
	both.Wait()
}

func (s *memifStream) receive(ended <-chan struct{}) {
	var over <-chan time.Time
	q, buffer, latest := s.to.RxQueues()[0], [][]byte{make([]byte, 2048)}, time.Time{}
	for {
		for q.Receive(buffer) > 0 {
			n := int(binary.BigEndian.Uint64(buffer[0][frame.EthernetLen:]))
			now := time.Now()
			if !latest.IsZero() {
				s.gap = max(s.gap, now.Sub(latest))
			}
			if n <= s.last {
				s.reorders++
			}
			s.last, latest = n, now
			s.received++
			s.arrived.Add(1)
			buffer[0] = buffer[0][:cap(buffer[0])]
		}
		select {
		case <-ended:
			ended, over = nil, time.After(time.Second)
		case <-over:
			return
		case <-time.After(100 * time.Microsecond):
		}
		if over != nil && s.received == s.sent {
			return
		}
	}
}

// memifPairs makes pairs of memifs, each in a bridge domain of its own, and connects a client to each memif.
func memifPairs(t *testing.T, r *running, pairs int) (conns [][2]*memif.Conn) {
	t.Helper()
	api := r.connect(t)
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
		conns = append(conns, pair)
	}
	return conns
}

// The clients of memifs notice nothing of a handover: their connections stay, and no frame is lost, repeated or reordered. The rings
// hold the frames of more than a second.
func TestHandoverKeepsMemifConnections(t *testing.T) {
	netnstest.Require(t)
	for name, pairs := range map[string]int{"two memifs": 1, "fifty memifs": 25} {
		t.Run(name, func(t *testing.T) {
			first := start(t)
			conns := memifPairs(t, first, pairs)
			active := first
			for round := range 3 {
				next := fmt.Sprintf("next%d", round)
				standby := startHeir(t, first.socket, next)
				ctx, stop := context.WithCancel(t.Context())
				streams := make([]*memifStream, pairs)
				var all sync.WaitGroup
				for n, pair := range conns {
					streams[n] = &memifStream{from: pair[round%2], to: pair[(round+1)%2]}
					all.Go(func() { streams[n].run(ctx, byte(n), time.Millisecond) })
				}
				eventually(t, func() bool { return streams[pairs-1].arrived.Load() > 20 })
				active.stop()
				becomesActive(t, first.socket, next)
				after := streams[pairs-1].arrived.Load()
				eventually(t, func() bool { return streams[pairs-1].arrived.Load() > after+100 })
				stop()
				all.Wait()
				checkStreams(t, streams)
				active = standby
			}
			for _, pair := range conns {
				for _, c := range pair {
					if err := c.Err(); err != nil {
						t.Error("a client was disconnected:", err)
					}
				}
			}
		})
	}
}

func checkStreams(t *testing.T, streams []*memifStream) {
	t.Helper()
	var sent, received, full int
	var gap time.Duration
	for n, s := range streams {
		sent, received, full, gap = sent+s.sent, received+s.received, full+s.full, max(gap, s.gap)
		if s.received != s.sent || s.reorders > 0 {
			t.Errorf("pair %d: %d of %d frames lost, %d reordered", n, s.sent-s.received, s.sent, s.reorders)
		}
	}
	t.Logf("%d pairs: %d of %d frames lost, %d delayed by a full ring, longest gap %s", len(streams), sent-received, sent, full, gap.Round(time.Millisecond/10))
}
