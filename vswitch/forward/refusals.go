package forward

import (
	"log/slog"
	"sync"
	"time"

	"github.com/weftnet/weft/memif"
)

// refusalPause is how long a socket's refusals are only counted after one was logged: who knocks ten thousand times a
// minute must not fill the log.
const refusalPause = 5 * time.Second

// refusalLog tells of clients that a socket turned away.
type refusalLog struct {
	log    *slog.Logger
	socket string

	mu     sync.Mutex
	last   time.Time
	unsaid int
}

func (l *refusalLog) add(r memif.Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() && now.Sub(l.last) < refusalPause {
		l.unsaid++
		return
	}
	l.log.Warn("memif client refused", "socket", l.socket, "id", r.ID, "peer", r.Peer, "pid", r.PID, "uid", r.UID,
		"unsaid", l.unsaid, "err", r.Err)
	l.last, l.unsaid = now, 0
}
