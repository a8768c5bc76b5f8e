package packets

import (
	"sync"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// ring holds the packets that wait for the client, up to a number of bytes. Without room it loses the newest packets,
// so that a slow client slows only itself.
type ring struct {
	limit int
	ready chan struct{} // has an element if packets wait

	mu      sync.Mutex
	packets []*operatorv1.CapturedPacket
	used    int
	lost    uint64
}

const (
	// overhead is the approximate size of a packet without its data.
	overhead = 128
	// maxBatch limits the data of a message to the client.
	maxBatch = 256 << 10
)

func newRing(limit int) *ring { return &ring{limit: limit, ready: make(chan struct{}, 1)} }

// room reports whether a packet with n bytes fits, and counts it as lost otherwise.
func (r *ring) room(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n+overhead > r.limit {
		r.lost++
		return false
	}
	return true
}

// put adds a packet for which there was room.
func (r *ring) put(p *operatorv1.CapturedPacket) {
	r.mu.Lock()
	r.packets = append(r.packets, p)
	r.used += len(p.Data) + overhead
	r.mu.Unlock()
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// take removes the oldest packets, as many as fit into a message.
func (r *ring) take() []*operatorv1.CapturedPacket {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	size := 0
	for n < len(r.packets) && (n == 0 || size < maxBatch) {
		size += len(r.packets[n].Data) + overhead
		n++
	}
	taken := r.packets[:n:n]
	r.packets = r.packets[n:]
	r.used = r.used - size
	if len(r.packets) == 0 {
		r.packets = nil
	}
	return taken
}

func (r *ring) losses() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}
