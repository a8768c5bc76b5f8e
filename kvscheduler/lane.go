package kvscheduler

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	audit  []Kind               // kinds to be compared when the call that hangs has returned; owned by the state goroutine
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

// job is one backend call.
type job struct {
	k       *kind
	lane    *lane
	verb    Verb
	level   int32
	number  int
	ids     []plan.ID
	items   []opItem
	results []opResult
	started bool
	at      time.Time
	took    time.Duration
}

// dispatch runs the jobs of a level: lanes in parallel, the jobs of a lane one after the other. With stop set, no job is started after a
// failure.
func (s *Scheduler) dispatch(ctx context.Context, jobs []*job, stop bool) {
	var failed atomic.Bool
	run := func(l *lane) {
		for _, j := range jobs {
			if j.lane != l || stop && failed.Load() || ctx.Err() != nil || l.hung.Load() {
				continue
			}
			s.call(ctx, j)
			for _, r := range j.results {
				if r.err != nil {
					failed.Store(true)
				}
			}
		}
	}
	var lanes []*lane
	for _, j := range jobs {
		if len(lanes) == 0 || lanes[len(lanes)-1] != j.lane {
			lanes = appendOnce(lanes, j.lane)
		}
	}
	var wg sync.WaitGroup
	for _, l := range lanes[min(1, len(lanes)):] {
		wg.Go(func() { run(l) })
	}
	if len(lanes) > 0 {
		run(lanes[0])
	}
	wg.Wait()
}

func appendKind(kinds []Kind, k Kind) []Kind {
	if slices.Contains(kinds, k) {
		return kinds
	}
	return append(kinds, k)
}

func appendOnce(lanes []*lane, l *lane) []*lane {
	for _, have := range lanes {
		if have == l {
			return lanes
		}
	}
	return append(lanes, l)
}

// call makes one backend call with a deadline. A call that does not return soon after the deadline is abandoned with its copy of the batch;
// its lane stays closed until the call returns.
func (s *Scheduler) call(ctx context.Context, j *job) {
	j.started, j.at = true, s.cfg.Now()
	if !j.k.backed {
		j.results = make([]opResult, len(j.items))
		return
	}
	limit := s.cfg.limit(len(j.items))
	s.bounded(ctx, j.lane, limit, func(ctx context.Context) func() {
		out := j.k.call(ctx, j.verb, j.items)
		return func() { j.results = out }
	})
	j.took = s.cfg.Now().Sub(j.at)
	if j.results == nil {
		j.results = make([]opResult, len(j.items))
		for i := range j.results {
			j.results[i].err = fmt.Errorf("no answer within %s: %w", limit, context.DeadlineExceeded)
		}
	}
}

// limit returns the time limit of a backend call for n objects. VPP takes up to 100 ms to create an interface, and a replay creates the
// interfaces of all pods in one call.
func (c *Config) limit(n int) time.Duration {
	return c.OpTimeout + time.Duration(n-1)*c.OpTimeout/20
}

// bounded runs f on a goroutine of its own, and then the function that f returned, unless f exceeds its deadline by a grace time.
func (s *Scheduler) bounded(ctx context.Context, l *lane, limit time.Duration, f func(context.Context) func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	const running, returned, abandoned = 0, 1, 2
	var where atomic.Int32
	done := make(chan func(), 1)
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		defer cancel()
		done <- f(ctx)
		if !where.CompareAndSwap(running, returned) {
			s.laneFree(l)
		}
	}()
	select {
	case use := <-done:
		use()
		return
	case <-ctx.Done():
	}
	grace := time.NewTimer(limit / 10)
	defer grace.Stop()
	select {
	case use := <-done:
		use()
		return
	case <-grace.C:
	}
	if l != nil {
		l.hung.Store(true)
	}
	if !where.CompareAndSwap(running, abandoned) { // it returned at the very last moment
		if l != nil {
			l.hung.Store(false)
		}
		(<-done)()
	}
}

// laneFree is called when an abandoned call has returned.
func (s *Scheduler) laneFree(l *lane) {
	if l == nil {
		return
	}
	s.post(func(st *state) {
		l.hung.Store(false)
		st.reopen(l)
		kinds := l.audit
		l.audit = nil
		st.resyncLost(kinds)
	})
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
