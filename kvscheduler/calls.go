package kvscheduler

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

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

// calls makes the calls of backends, with deadlines.
type calls struct {
	now      func() time.Time
	log      *slog.Logger
	pending  sync.WaitGroup // including abandoned calls
	onReturn func(*lane)    // called when an abandoned call of a lane has returned
	freed    chan struct{}  // after that
}

// dispatch runs the jobs of a level: lanes in parallel, the jobs of a lane one after the other. With stop set, no job
// is started after a failure.
func (c *calls) dispatch(ctx context.Context, jobs []*job, stop bool) {
	var failed atomic.Bool
	run := func(l *lane) {
		for _, j := range jobs {
			if j.lane != l || stop && failed.Load() || ctx.Err() != nil || l.hung.Load() {
				continue
			}
			c.call(ctx, j)
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

// call makes one backend call with a deadline. A call that does not return soon after the deadline is abandoned with
// its copy of the batch; its lane stays closed until the call returns.
func (c *calls) call(ctx context.Context, j *job) {
	j.started = true
	j.at = c.now()
	if !j.k.backed {
		j.results = make([]opResult, len(j.items))
		return
	}
	limit := callTimeout(len(j.items))
	c.bounded(ctx, j.lane, limit, func(ctx context.Context) func() {
		out := j.k.call(ctx, j.verb, j.items)
		return func() { j.results = out }
	})
	j.took = c.now().Sub(j.at)
	if j.results == nil {
		j.results = make([]opResult, len(j.items))
		for i := range j.results {
			j.results[i].err = fmt.Errorf("no answer within %s: %w", limit, context.DeadlineExceeded)
		}
	}
}

// bounded runs f on a goroutine of its own, and then the function that f returned, unless f exceeds its deadline by a
// grace time.
func (c *calls) bounded(ctx context.Context, l *lane, limit time.Duration, f func(context.Context) func()) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	const (
		running   = 0
		returned  = 1
		abandoned = 2
	)
	var where atomic.Int32
	done := make(chan func(), 1)
	c.pending.Add(1)
	go func() {
		defer c.pending.Done()
		defer cancel()
		done <- f(ctx)
		if !where.CompareAndSwap(running, returned) {
			c.returned(l)
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

// await waits for all calls, at most opTimeout for one that ignores its context.
func (c *calls) await() {
	done := make(chan struct{})
	go func() {
		c.pending.Wait()
		close(done)
	}()
	limit := time.NewTimer(opTimeout)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		c.log.Error("a backend call does not return")
	}
}

// returned is called when an abandoned call has returned; l is nil for a dump.
func (c *calls) returned(l *lane) {
	if l == nil {
		return
	}
	c.onReturn(l)
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// callTimeout returns the time limit of a backend call for n objects. VPP takes up to 100 ms to create an interface,
// and a replay creates the interfaces of all pods in one call.
func callTimeout(n int) time.Duration {
	return opTimeout + time.Duration(n-1)*opTimeout/20
}

func appendOnce(lanes []*lane, l *lane) []*lane {
	for _, have := range lanes {
		if have == l {
			return lanes
		}
	}
	return append(lanes, l)
}
