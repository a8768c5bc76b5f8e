package kvscheduler

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

// delay returns how long to wait after the given number of failures in a row.
func (p RetryPolicy) delay(attempt int) time.Duration {
	d := float64(p.Min) * math.Pow(p.Factor, float64(attempt-1))
	d = min(d, float64(p.Max))
	if p.Jitter > 0 {
		d *= 1 + p.Jitter*(2*rand.Float64()-1)
	}
	return time.Duration(d)
}

// retries is a heap of failed objects by the time of their retry.
type retries struct {
	*state
	ids    []int32
	window time.Time // begin of the second in which started were
	begun  int
}

// Len, Less, Swap, Push and Pop make a heap.
func (r *retries) Len() int { return len(r.ids) }

// Less orders by time.
func (r *retries) Less(i, j int) bool {
	return r.g.nodes[r.ids[i]].retryAt.Before(r.g.nodes[r.ids[j]].retryAt)
}

// Swap keeps the nodes' slots right.
func (r *retries) Swap(i, j int) {
	r.ids[i], r.ids[j] = r.ids[j], r.ids[i]
	r.g.nodes[r.ids[i]].retrySlot, r.g.nodes[r.ids[j]].retrySlot = i, j
}

// Push adds a node's id.
func (r *retries) Push(x any) {
	r.g.nodes[x.(int32)].retrySlot = len(r.ids)
	r.ids = append(r.ids, x.(int32))
}

// Pop removes the last.
func (r *retries) Pop() any {
	last := len(r.ids) - 1
	id := r.ids[last]
	r.ids = r.ids[:last]
	r.g.nodes[id].retrySlot = -1
	return id
}

// fix brings the heap in line with the node's retryAt; zero means no retry.
func (r *retries) fix(id int32) {
	n := r.g.nodes[id]
	switch {
	case n.retryAt.IsZero() && n.retrySlot >= 0:
		heap.Remove(r, n.retrySlot)
	case n.retryAt.IsZero():
	case n.retrySlot >= 0:
		heap.Fix(r, n.retrySlot)
	default:
		heap.Push(r, id)
	}
}

// due takes the objects whose time has come, at most Burst of them in a second.
func (r *retries) due(now time.Time) (ids []int32) {
	if now.Sub(r.window) >= time.Second {
		r.window, r.begun = now, 0
	}
	for len(r.ids) > 0 && r.begun < r.cfg.Retry.Burst && !r.g.nodes[r.ids[0]].retryAt.After(now) {
		ids = append(ids, heap.Pop(r).(int32))
		r.begun++
	}
	return ids
}

// next returns when due has something, or zero.
func (r *retries) next() time.Time {
	if len(r.ids) == 0 {
		return time.Time{}
	}
	at := r.g.nodes[r.ids[0]].retryAt
	if full := r.window.Add(time.Second); r.begun >= r.cfg.Retry.Burst && at.Before(full) {
		return full
	}
	return at
}

// pause closes a lane whose backend is down: no attempt is counted, and a probe comes later.
func (s *state) pause(l *lane, id int32) {
	if !l.paused {
		s.cfg.Logger.Warn("backend is down", "lane", l.name, "err", s.g.nodes[id].err)
	}
	l.paused = true
	l.until = s.now().Add(min(s.cfg.Retry.Max, 20*s.cfg.Retry.Min))
	l.idle = append(l.idle, id)
}

// reopen opens a lane and makes what waited for it due at once.
func (s *state) reopen(l *lane) {
	l.paused = false
	now := s.now()
	for _, id := range l.idle {
		n := s.g.nodes[id]
		if n.ref != (Ref{}) && (n.err != nil || n.skipped || n.unknown) {
			n.retryAt = now
			s.retries.fix(id)
		}
	}
	l.idle = l.idle[:0]
}

// reopenLanes opens the lanes of kinds that were dumped. What waited for them is retried after the dump was merged, so that
// no operation uses a handle of a backend that was replaced.
func (s *state) reopenLanes(dumps map[Kind]found) {
	for name := range dumps {
		if l := s.lanes[s.kinds[name].lane]; l.paused {
			s.reopen(l)
		}
	}
}
