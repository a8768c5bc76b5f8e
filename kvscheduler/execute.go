package kvscheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// run is the execution of one request, with its plans, operations and record.
type run struct {
	*state
	ctx     context.Context
	rec     *Record
	began   time.Time
	why     string // why the objects asked for are dirty
	atomic  bool
	dry     bool             // operations are neither executed nor logged
	own     map[plan.ID]bool // objects with failures that the caller gets; nil: all
	batches int
	left    int // operations that were left out
	errs    []error
	touched []plan.ID // all nodes that a plan affected
	planned *plan.Plan
	doubt   []doubt // operations of this level with an unknown outcome
}

type doubt struct {
	id   plan.ID
	verb Verb
	err  error
	slot int // in rec.Ops
}

// plan makes a plan and records the objects that it affected.
func (r *run) plan(dirty []plan.ID) []plan.Op {
	begin := r.now()
	r.planned = r.g.Plan(dirty, begin)
	r.rec.PlanTook += r.now().Sub(begin)
	r.touched = append(r.touched, r.planned.Affected()...)
	return r.planned.Ops
}

// execute runs a plan level by level.
func (r *run) execute(ops []plan.Op) {
	for i := 0; i < len(ops); {
		j := i
		for j < len(ops) && ops[j].Level == ops[i].Level {
			j++
		}
		r.whole(ops[i:j])
		i = j
		if r.atomic && len(r.errs) == 0 && r.ctx.Err() != nil && (i < len(ops) || r.left > 0) {
			r.fault(fmt.Errorf("given up: %w", context.Cause(r.ctx)))
		}
		if r.atomic && len(r.errs) > 0 {
			return
		}
	}
}

// outcomeApplied is the outcome of an operation that was done.
const outcomeApplied = "applied"

// retreating is the reason of operations that retreat plans, if no object that is not applied can be named.
const retreating = "dep"

// retreat deletes the objects that need no operation for their desired values, but must not exist with it any longer,
// because an object that it newly depends on was not applied.
func (r *run) retreat() {
	var stranded []plan.ID
	for _, id := range r.touched {
		n := r.g.Node(id)
		if !n.Stays() || !n.Matches() {
			continue
		}
		if _, unmet := r.g.Unmet(n); unmet {
			stranded = append(stranded, id)
		}
	}
	if len(stranded) == 0 {
		return
	}
	why := r.why
	r.why = retreating
	r.execute(r.plan(stranded))
	r.why = why
}

// whole executes a level. Calls that were left out because of a failed call are made after all if a read back shows
// that the call succeeded.
func (r *run) whole(ops []plan.Op) {
	for len(ops) > 0 {
		rest := r.level(ops)
		if len(rest) == len(ops) || r.ctx.Err() != nil || r.atomic && len(r.errs) > 0 {
			for _, o := range rest {
				r.leave(o, "not begun")
				r.g.Node(o.ID).RetryAt = r.now().Add(r.cfg.limits.retry.min)
				r.retries.fix(o.ID)
			}
			return
		}
		ops = rest
	}
}

func (r *run) level(ops []plan.Op) (rest []plan.Op) {
	jobs := r.jobs(ops)
	r.calls.dispatch(r.ctx, jobs, r.atomic)
	r.doubt = r.doubt[:0]
	for _, j := range jobs {
		for i, id := range j.ids {
			if j.started {
				r.settle(j, i, id)
			} else {
				rest = append(rest, plan.Op{ID: id, Level: j.level, Verb: j.verb})
			}
		}
	}
	if len(r.doubt) > 0 {
		r.publish(r.touched)
		readBack{r}.resolveDoubt()
	}
	if len(jobs) > 0 && jobs[0].took > 50*time.Millisecond {
		r.publish(r.touched)
	}
	return rest
}

// jobs puts the operations of a level into batches, without those that cannot be done any longer.
func (r *run) jobs(ops []plan.Op) []*job {
	var jobs []*job
	var last *job
	for _, o := range ops {
		n := r.g.Node(o.ID)
		if n.Recreated() && o.Verb == Delete {
			n.Again = true
		}
		l := r.lanes[kindOf(n).lane]
		if by, blocked := r.planned.Obstacle(o); blocked {
			r.leave(o, "waits for "+r.name(by))
			continue
		}
		if kindOf(n).backed && l.closed() {
			l.await(o.ID)
			n.Err = fmt.Errorf("%s %s: lane %q is paused: %w", o.Verb, n.Ref, l.name, ErrDown)
			r.faultOf(o.ID, n.Err)
			r.leave(o, n.Err.Error())
			continue
		}
		if last == nil || last.k != kindOf(n) || last.verb != o.Verb || len(last.ids) == r.cfg.limits.batch {
			r.batches++
			last = &job{k: kindOf(n), lane: l, verb: o.Verb, level: o.Level, number: r.batches}
			jobs = append(jobs, last)
		}
		last.ids = append(last.ids, o.ID)
		last.items = append(last.items, r.item(o.ID, o.Verb))
	}
	return jobs
}

func (r *run) name(id plan.ID) string {
	if id < 0 {
		return "a member of a bucket"
	}
	return r.g.Node(id).Ref.String()
}

func (r *run) item(id plan.ID, verb Verb) opItem {
	n := r.g.Node(id)
	it := opItem{name: n.Ref.Name, attempt: n.Attempt}
	if verb != Create {
		it.have = n.Have
		it.meta = n.Meta
	}
	if verb == Delete {
		return it
	}
	it.want = n.Want
	it.handles = r.g.Handles(n)
	return it
}

// settle notes the result of one operation.
func (r *run) settle(j *job, i int, id plan.ID) {
	n := r.g.Node(id)
	rec := r.record(plan.Op{ID: id, Level: j.level, Verb: j.verb})
	rec.Batch = j.number
	rec.At = j.at.Sub(r.began)
	rec.Took = j.took
	rec.Attempt = n.Attempt
	err := j.results[i].err
	if err == nil {
		r.applied(id, j.verb, j.results[i].meta)
		rec.Outcome = outcomeApplied
		r.rec.Ops = append(r.rec.Ops, rec)
		return
	}
	rec.Err = err.Error()
	rec.Outcome = Unknown.String()
	var oe *OpError
	if errors.As(err, &oe) && oe.Outcome == NotApplied {
		rec.Outcome = NotApplied.String()
		r.fail(id, j.verb, err)
	} else {
		r.g.Doubt(id)
		r.doubt = append(r.doubt, doubt{id: id, verb: j.verb, err: err, slot: len(r.rec.Ops)})
	}
	r.rec.Ops = append(r.rec.Ops, rec)
}

// leave records that an operation was left out.
func (r *run) leave(o plan.Op, why string) {
	rec := r.record(o)
	rec.Err = why
	rec.Outcome = "skipped"
	r.rec.Ops = append(r.rec.Ops, rec)
	r.g.LeftOut.Add(o.ID)
	r.left++
}

// fail notes that an operation was not done.
func (r *run) fail(id plan.ID, verb Verb, err error) {
	n := r.g.Node(id)
	var oe *OpError
	f := plan.Failure{
		Err:     &failedOps{verb: verb, refs: []Ref{n.Ref}, cause: err},
		Attempt: n.Attempt,
		RetryAt: n.RetryAt,
	}
	f.Permanent = errors.As(err, &oe) && oe.Permanent && oe.Outcome == NotApplied
	r.faultOf(id, f.Err)
	if errors.Is(err, ErrDown) {
		r.g.Fail(id, f)
		r.pause(r.lanes[kindOf(n).lane], id)
		return
	}
	f.Attempt++
	f.RetryAt = time.Time{}
	if !f.Permanent {
		f.RetryAt = r.now().Add(r.cfg.limits.retry.delay(f.Attempt))
	}
	r.g.Fail(id, f)
	r.retries.fix(id)
}

func (r *run) fault(err error) { r.errs = append(r.errs, err) }

// faultOf adds the failure of an object, unless only the caller of another transaction asked for it. Its record has the
// failure anyway.
func (r *run) faultOf(id plan.ID, err error) {
	if r.own == nil || r.own[id] {
		r.fault(err)
	}
}
