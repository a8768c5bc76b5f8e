package kvscheduler

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// lane is a queue of backend calls that never overlap.
type lane struct {
	name   string
	hung   atomic.Bool          // a call was abandoned and has not returned: no other call may start before
	paused bool                 // the backend said that it is down; owned by the state goroutine
	until  time.Time            // when to probe it
	idle   map[plan.ID]struct{} // objects that wait for the lane; a set, because each attempt adds the same ones
	// kinds to be compared when the call that hangs has returned; owned by the state goroutine
	audit []Kind
}

// await makes an object wait for the lane.
func (l *lane) await(ids ...plan.ID) {
	if l.idle == nil {
		l.idle = make(map[plan.ID]struct{})
	}
	for _, id := range ids {
		l.idle[id] = struct{}{}
	}
}

func (l *lane) closed() bool { return l.paused || l.hung.Load() }

func appendKind(kinds []Kind, k Kind) []Kind {
	if slices.Contains(kinds, k) {
		return kinds
	}
	return append(kinds, k)
}

// laneFree opens a lane after its abandoned call has returned.
func (s *Scheduler) laneFree(l *lane) {
	s.post(func(st *state) {
		l.hung.Store(false)
		st.reopen(l)
		kinds := l.audit
		l.audit = nil
		st.resyncLost(kinds)
	})
}
