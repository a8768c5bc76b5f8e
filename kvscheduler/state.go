package kvscheduler

import (
	"context"
	"errors"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// state is owned by the goroutine of Run. No other goroutine touches it.
type state struct {
	*Scheduler
	life    context.Context // ends with Run
	g       *plan.Graph
	rev     uint64 // of desired values
	seq     uint64
	sources sources
	retries *retries
	journal *journal
	adopted []plan.ID // objects with applied values that were taken from a backend
	lost    []Kind    // to be read again when the present such resync has ended
	losing  bool
}

func newState(s *Scheduler) *state {
	rules := make(map[Kind]plan.Rules, len(s.kinds))
	for name, k := range s.kinds {
		rules[name] = k
	}
	st := &state{Scheduler: s, g: plan.New(rules), sources: newSources(), journal: &journal{to: s.cfg.Journal}}
	st.retries = &retries{state: st}
	return st
}

// kindOf returns the kind of a node; nil: it is not registered.
func kindOf(n *plan.Node) *kind {
	k, _ := n.Rules.(*kind)
	return k
}

func (s *state) now() time.Time { return s.cfg.Now() }

// applied notes that an operation succeeded.
func (s *state) applied(id plan.ID, verb Verb, meta any) {
	s.g.Applied(id, verb, meta)
	s.clearError(id)
	s.journal.note(id)
}

func (s *state) clearError(id plan.ID) {
	s.g.Node(id).Failure = plan.Failure{}
	s.retries.fix(id)
}

// Run owns the state until ctx ends. It may be called once. A restart begins with a Resync, which learns the existing
// objects and does not prune while a source is not Ready; then come the transactions of the sources with Replace, Ready
// for each, and one more Resync, which prunes. When it returns, no goroutine of the scheduler is left, except a backend
// call that does not heed its context.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("the scheduler runs already")
	}
	st, err := s.prepare()
	if err == nil {
		st.life = ctx
		st.loop(ctx)
	}
	for _, q := range s.close() {
		q.reply <- reply{err: ErrStopped}
	}
	close(s.stopped)
	s.calls.await()
	s.log.delivered.Wait()
	return err
}

func (s *Scheduler) prepare() (*state, error) {
	names := s.kindNames()
	for i, k := range names {
		s.kindIndex[k] = i
	}
	if _, err := s.dumpOrder(names); err != nil {
		return nil, err
	}
	st := newState(s)
	st.seq = s.lastSeq
	return st, st.journal.load(st.g, s.kinds, s.cfg.Logger)
}

func (s *state) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		if s.step(ctx) {
			continue
		}
		timer.Reset(s.untilDue())
		select {
		case <-s.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// step does one unit of each kind of work, so that no kind starves another. It returns false if no work was waiting.
func (s *state) step(ctx context.Context) (worked bool) {
	worked = s.drainPosted()
	now := s.now()
	for _, l := range s.lanes {
		if l.paused && !l.until.After(now) {
			s.reopen(l)
		}
	}
	if ids := s.retries.due(now); len(ids) > 0 {
		s.retry(ctx, ids)
		worked = true
	}
	if q := s.next(); q != nil {
		s.serve(ctx, q)
		worked = true
	}
	return worked
}

func (s *state) drainPosted() bool {
	posted := s.takePosted()
	for _, f := range posted {
		f(s)
	}
	return len(posted) > 0
}

// serve executes one request. An atomic transaction ends with its caller's context, others only with Run.
func (s *state) serve(ctx context.Context, q *request) {
	if q.txn.Mode == Atomic {
		var cancel context.CancelFunc
		ctx, cancel = merged(ctx, q.ctx)
		defer cancel()
	}
	rec, err := q.serve(s, ctx, q)
	q.reply <- reply{rec: rec, err: err}
}

// merged returns a context that ends when either context ends.
func merged(run, caller context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(run)
	stop := context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	return ctx, func() { stop(); cancel(nil) }
}

// retry retries the objects that are due, and executes operations that were left out because of a failure.
func (s *state) retry(ctx context.Context, ids []plan.ID) {
	r := s.begin(ctx, "retry", "retry")
	for _, id := range ids {
		s.g.Node(id).RetryAt = time.Time{}
	}
	ids = s.withSkipped(ids)
	readBack{r}.readDoubtful(ids)
	ops := r.plan(ids)
	r.execute(ops)
	r.retreat()
	if _, err := r.finish(); err != nil {
		s.cfg.Logger.Warn("retry", "objects", len(ids), "err", err)
	}
}

// untilDue returns the time until the next retry or probe of a lane is due.
func (s *state) untilDue() time.Duration {
	now := s.now()
	wait := time.Hour
	due := func(at time.Time) {
		if !at.IsZero() {
			wait = min(wait, max(0, at.Sub(now)))
		}
	}
	due(s.retries.next())
	for _, l := range s.lanes {
		if l.paused {
			due(l.until)
		}
	}
	return wait
}
