package kvscheduler

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// delay returns how long to wait after the given number of failures in a row.
func (p retryPolicy) delay(attempt int) time.Duration {
	d := float64(p.min) * math.Pow(p.factor, float64(attempt-1))
	d = min(d, float64(p.max))
	d *= 1 + p.jitter*(2*rand.Float64()-1)
	return time.Duration(d)
}

// retries is a heap of failed objects by the time of their retry.
type retries struct {
	*state
	ids    []plan.ID
	window time.Time // begin of the second in which started were
	begun  int
}

// Len, Less, Swap, Push and Pop make a heap.
func (r *retries) Len() int { return len(r.ids) }

// Less orders by time.
func (r *retries) Less(i, j int) bool {
	return r.g.Node(r.ids[i]).RetryAt.Before(r.g.Node(r.ids[j]).RetryAt)
}

// Swap keeps the nodes' slots right.
func (r *retries) Swap(i, j int) {
	r.ids[i], r.ids[j] = r.ids[j], r.ids[i]
	r.g.Node(r.ids[i]).RetrySlot = i
	r.g.Node(r.ids[j]).RetrySlot = j
}

// Push adds a node's id.
func (r *retries) Push(x any) {
	r.g.Node(x.(plan.ID)).RetrySlot = len(r.ids)
	r.ids = append(r.ids, x.(plan.ID))
}

// Pop removes the last.
func (r *retries) Pop() any {
	last := len(r.ids) - 1
	id := r.ids[last]
	r.ids = r.ids[:last]
	r.g.Node(id).RetrySlot = -1
	return id
}

// fix moves a node to its place in the heap after its RetryAt changed. Zero means no retry.
func (r *retries) fix(id plan.ID) {
	n := r.g.Node(id)
	switch {
	case n.RetryAt.IsZero() && n.RetrySlot >= 0:
		heap.Remove(r, n.RetrySlot)
	case n.RetryAt.IsZero():
	case n.RetrySlot >= 0:
		heap.Fix(r, n.RetrySlot)
	default:
		heap.Push(r, id)
	}
}

// due removes and returns the objects with a retry that is due, at most Burst of them per second.
func (r *retries) due(now time.Time) (ids []plan.ID) {
	if now.Sub(r.window) >= time.Second {
		r.window = now
		r.begun = 0
	}
	for len(r.ids) > 0 && r.begun < r.cfg.limits.retry.burst && !r.g.Node(r.ids[0]).RetryAt.After(now) {
		ids = append(ids, heap.Pop(r).(plan.ID))
		r.begun++
	}
	return ids
}

// next returns when due has something, or zero.
func (r *retries) next() time.Time {
	if len(r.ids) == 0 {
		return time.Time{}
	}
	at := r.g.Node(r.ids[0]).RetryAt
	if full := r.window.Add(time.Second); r.begun >= r.cfg.limits.retry.burst && at.Before(full) {
		return full
	}
	return at
}

// pause closes the lane of a backend that is down. No attempt is counted, and the backend is probed later.
func (s *state) pause(l *lane, id plan.ID) {
	if !l.paused {
		s.cfg.Logger.Warn("backend is down", "lane", l.name, "err", s.g.Node(id).Err)
	}
	l.paused = true
	l.until = s.now().Add(min(s.cfg.limits.retry.max, 20*s.cfg.limits.retry.min))
	l.await(id)
}

// reopen opens a lane and makes the objects that waited for it due at once.
func (s *state) reopen(l *lane) {
	l.paused = false
	now := s.now()
	for id := range l.idle {
		n := s.g.Node(id)
		if n.Ref != (Ref{}) && (n.Err != nil || s.g.LeftOut.Has(id) || n.Phase() == plan.Doubtful) {
			n.RetryAt = now
			s.retries.fix(id)
		}
	}
	l.idle = nil
}

// reopenLanes opens the lanes of kinds that were dumped. The objects that waited for them are retried after the dump
// was merged, so that no operation uses a handle of a backend that was replaced.
func (s *state) reopenLanes(dumps map[Kind]found) {
	for name := range dumps {
		if l := s.lanes[s.kinds[name].lane]; l.paused {
			s.reopen(l)
		}
	}
}
