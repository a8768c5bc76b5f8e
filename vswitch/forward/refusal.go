package forward

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/vswitch/port"
)

// refusalPause is the time after a logged refusal during which a socket's refusals are only counted: a client that
// retries all the time must not fill the log.
const refusalPause = 5 * time.Second

// refusalLog logs the clients that a socket refuses.
type refusalLog struct {
	log    *slog.Logger
	socket string
	counts *refusalCounts

	mu         sync.Mutex
	last       time.Time
	suppressed int
}

func (l *refusalLog) add(r memif.Refusal) {
	l.counts.add(l.socket, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < refusalPause {
		l.suppressed++
		return
	}
	l.log.Warn("memif client refused", "socket", l.socket, "id", r.ID, "peer", r.Peer, "pid", r.PID, "uid", r.UID,
		"suppressed", l.suppressed, "err", r.Err)
	l.last = now
	l.suppressed = 0
}

// countedReasons are the reasons of refusals that are counted one by one. Others share a counter, because a client must
// not create counters.
var countedReasons = []string{"secret required", "incorrect secret", "mode mismatch", "unsupported version"}

// otherReason counts the other refusals: broken handshakes and a client that is not the first.
const otherReason = "handshake refused"

// refusalCounts counts the refused clients of each memif. Its lock is held for no call, so that refusals never wait for
// control.
type refusalCounts struct {
	mu     sync.Mutex
	memifs map[memifID]*refusedClients
}

// memifID identifies a memif by its socket.
type memifID struct {
	socket string
	id     uint32
}

// refusedClients are the refusals of one memif, by reason.
type refusedClients struct {
	name    string // of the interface
	reasons map[string]uint64
}

func (c *refusalCounts) follow(config port.MemifConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memifs == nil {
		c.memifs = map[memifID]*refusedClients{}
	}
	c.memifs[memifID{config.Socket, config.ID}] = &refusedClients{name: config.Name, reasons: map[string]uint64{}}
}

func (c *refusalCounts) forget(config port.MemifConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memifs, memifID{config.Socket, config.ID})
}

// add counts a refusal. Refusals for unknown memifs are not counted: they are in the log.
func (c *refusalCounts) add(socket string, r memif.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.memifs[memifID{socket, r.ID}]
	if m == nil || !r.IDKnown {
		return
	}
	reason := otherReason
	if told, ok := errors.AsType[*memif.DisconnectError](r.Err); ok && slices.Contains(countedReasons, told.Reason) {
		reason = told.Reason
	}
	m.reasons[reason]++
}

// addTo adds the counters to sum, as errors of a node of each memif: NAME-control/client refused: REASON.
func (c *refusalCounts) addTo(sum map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for m := range maps.Values(c.memifs) {
		for reason, n := range m.reasons {
			sum[m.name+"-control/client refused: "+reason] += n
		}
	}
}
