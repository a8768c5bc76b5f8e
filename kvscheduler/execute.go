package kvscheduler

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// run is the execution of one request: its plans, its operations, its record.
type run struct {
	*state
	ctx     context.Context
	rec     *Record
	began   time.Time
	why     string // why the objects asked for are dirty
	atomic  bool
	dry     bool // nothing is executed, nothing is logged
	batches int
	left    int // operations that were left out
	errs    []error
	touched []int32 // everything a plan looked at
	doubt   []doubt // operations of this level with an unknown outcome
}

type doubt struct {
	id   int32
	verb Verb
	err  error
	slot int // in rec.Ops
}

// plan plans and remembers what was looked at.
func (r *run) plan(dirty []int32) []op {
	begin := r.now()
	ops := r.g.plan(dirty, begin, nil)
	r.rec.PlanTook += r.now().Sub(begin)
	r.touched = append(r.touched, r.g.aff...)
	return ops
}

// execute runs a plan level by level.
func (r *run) execute(ops []op) {
	for i := 0; i < len(ops); {
		j := i
		for j < len(ops) && ops[j].level == ops[i].level {
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

// whole runs a level. Calls that were not begun because another one seemed to fail are made after all if a read back
// shows that it did not.
func (r *run) whole(ops []op) {
	for len(ops) > 0 {
		rest := r.level(ops)
		if len(rest) == len(ops) || r.ctx.Err() != nil || r.atomic && len(r.errs) > 0 {
			for _, o := range rest {
				r.leave(o, "not begun")
				r.g.nodes[o.id].retryAt = r.now().Add(r.cfg.Retry.Min)
				r.retries.fix(o.id)
			}
			return
		}
		ops = rest
	}
}

func (r *run) level(ops []op) (rest []op) {
	jobs := r.jobs(ops)
	r.dispatch(r.ctx, jobs, r.atomic)
	r.doubt = r.doubt[:0]
	for _, j := range jobs {
		for i, id := range j.ids {
			if j.started {
				r.settle(j, i, id)
			} else {
				rest = append(rest, op{id: id, level: j.level, verb: j.verb})
			}
		}
	}
	if len(r.doubt) > 0 {
		r.publish(r.touched)
		r.resolveDoubt()
	}
	if len(jobs) > 0 && jobs[0].took > 50*time.Millisecond {
		r.publish(r.touched)
	}
	return rest
}

// jobs puts the operations of a level into batches, leaving out those that cannot be done any more.
func (r *run) jobs(ops []op) []*job {
	var jobs []*job
	var last *job
	for _, o := range ops {
		n := r.g.nodes[o.id]
		if n.act == recreate && o.verb == Delete {
			n.again = true
		}
		l := r.lanes[n.k.lane]
		if by, blocked := r.g.obstacle(o); blocked {
			r.leave(o, "waits for "+r.name(by))
			continue
		}
		if n.k.backed && l.closed() {
			l.idle = append(l.idle, o.id)
			n.err = fmt.Errorf("%s %s: lane %q is paused: %w", o.verb, n.ref, l.name, ErrDown)
			r.fault(n.err)
			r.leave(o, n.err.Error())
			continue
		}
		if last == nil || last.k != n.k || last.verb != o.verb || len(last.ids) == r.cfg.BatchMax {
			r.batches++
			last = &job{k: n.k, lane: l, verb: o.verb, level: o.level, number: r.batches}
			jobs = append(jobs, last)
		}
		last.ids = append(last.ids, o.id)
		last.items = append(last.items, r.item(o.id, o.verb))
	}
	return jobs
}

func (r *run) name(id int32) string {
	if id < 0 {
		return "a member of a bucket"
	}
	return r.g.nodes[id].ref.String()
}

func (r *run) item(id int32, verb Verb) opItem {
	n := r.g.nodes[id]
	it := opItem{name: n.ref.Name, attempt: n.attempt}
	if verb != Create {
		it.have, it.meta = n.have, n.meta
	}
	if verb == Delete {
		return it
	}
	it.want = n.want
	if n.ndeps == 0 {
		return it
	}
	it.handles = make([]any, n.ndeps)
	chosen := make([]int32, 0, 8)
	for _, e := range n.deps[wanted] {
		t := r.g.nodes[e.to]
		if e.dep < 0 || t.have == nil || t.unknown {
			continue
		}
		for int(e.dep) >= len(chosen) {
			chosen = append(chosen, -1)
		}
		if c := chosen[e.dep]; c < 0 || t.ref.Name < r.g.nodes[c].ref.Name {
			chosen[e.dep], it.handles[e.dep] = e.to, t.meta
		}
	}
	return it
}

// settle takes the result of one operation into the state.
func (r *run) settle(j *job, i int, id int32) {
	n := r.g.nodes[id]
	rec := r.record(op{id: id, level: j.level, verb: j.verb})
	rec.Batch, rec.At, rec.Took, rec.Attempt = j.number, j.at.Sub(r.began), j.took, n.attempt
	err := j.results[i].err
	if err == nil {
		r.applied(id, j.verb, j.results[i].meta)
		rec.Outcome = "applied"
		r.rec.Ops = append(r.rec.Ops, rec)
		return
	}
	rec.Err, rec.Outcome = err.Error(), Unknown.String()
	var oe *OpError
	if errors.As(err, &oe) && oe.Outcome == NotApplied {
		rec.Outcome = NotApplied.String()
		r.fail(id, j.verb, err)
	} else {
		r.uncertain(id)
		r.doubt = append(r.doubt, doubt{id: id, verb: j.verb, err: err, slot: len(r.rec.Ops)})
	}
	r.rec.Ops = append(r.rec.Ops, rec)
}

// leave records that an operation was not tried.
func (r *run) leave(o op, why string) {
	rec := r.record(o)
	rec.Err, rec.Outcome = why, "skipped"
	r.rec.Ops = append(r.rec.Ops, rec)
	r.g.nodes[o.id].skipped = true
	r.skipped[o.id] = struct{}{}
	r.left++
}

// fail notes that an operation was not done.
func (r *run) fail(id int32, verb Verb, err error) {
	n := r.g.nodes[id]
	n.err = &failedOps{verb: verb, refs: []Ref{n.ref}, cause: err}
	r.touch(n)
	r.fault(n.err)
	var oe *OpError
	n.permanent = errors.As(err, &oe) && oe.Permanent && oe.Outcome == NotApplied
	if errors.Is(err, ErrDown) {
		r.pause(r.lanes[n.k.lane], id)
		return
	}
	n.attempt++
	n.retryAt = time.Time{}
	if !n.permanent {
		n.retryAt = r.now().Add(r.cfg.Retry.delay(n.attempt))
	}
	r.retries.fix(id)
}

func (r *run) fault(err error) { r.errs = append(r.errs, err) }
