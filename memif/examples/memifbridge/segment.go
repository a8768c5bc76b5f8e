package main

import (
	"context"
	"sync"

	"github.com/weftnet/weft/memif"
)

const (
	burstSize = 64
	// maxAddresses limits the table. A full table is cleared.
	maxAddresses = 4096
)

type address [6]byte

// segment is a learning switch.
type segment struct {
	ports []*memif.Client

	mu    sync.Mutex
	where map[address]int
}

// forward forwards the frames of a port until ctx ends.
func (s *segment) forward(ctx context.Context, from int) {
	burst := make([][]byte, burstSize)
	memory := make([]byte, burstSize*memif.DefaultMaxPacket)
	out := make([][][]byte, len(s.ports))
	for {
		for i := range burst {
			at := i * memif.DefaultMaxPacket
			burst[i] = memory[at : at : at+memif.DefaultMaxPacket]
		}
		n, err := s.ports[from].ReadBurst(ctx, burst)
		if err != nil {
			return
		}
		s.sort(burst[:n], from, out)
		for to, packets := range out {
			// A port that is not connected drops its packets.
			_, _ = s.ports[to].WriteBurst(ctx, packets)
			out[to] = packets[:0]
		}
	}
}

// sort appends each packet to the lists of its output ports.
func (s *segment) sort(packets [][]byte, from int, out [][][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range packets {
		if len(p) < 14 {
			continue
		}
		s.learn(address(p[6:12]), from)
		to, known := s.where[address(p[:6])]
		for i := range out {
			if i != from && (!known || i == to) {
				out[i] = append(out[i], p)
			}
		}
	}
}

func (s *segment) learn(a address, from int) {
	if a[0]&1 != 0 {
		return
	}
	if _, known := s.where[a]; !known && len(s.where) >= maxAddresses {
		clear(s.where)
	}
	s.where[a] = from
}
