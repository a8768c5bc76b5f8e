package kvscheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	dry     bool             // nothing is executed, nothing is logged
	own     map[plan.ID]bool // objects with failures that the caller gets; nil: all
	batches int
	left    int // operations that were left out
	errs    []error
	touched []plan.ID // all nodes that a plan affected
	doubt   []doubt   // operations of this level with an unknown outcome
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
	ops := r.g.Plan(dirty, begin, nil)
	r.rec.PlanTook += r.now().Sub(begin)
	r.touched = append(r.touched, r.g.Affected()...)
	return ops
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

// retreat deletes the objects that need no operation for their desired values, but must not exist with it any longer, because an object that
// it newly depends on was not applied.
func (r *run) retreat() {
	var stranded []plan.ID
	for _, id := range r.touched {
		n := r.g.Node(id)
		if !n.Stays() || !n.InSync() {
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

// whole executes a level. Calls that were left out because of a failed call are made after all if a read back shows that the call
// succeeded.
func (r *run) whole(ops []plan.Op) {
	for len(ops) > 0 {
		rest := r.level(ops)
		if len(rest) == len(ops) || r.ctx.Err() != nil || r.atomic && len(r.errs) > 0 {
			for _, o := range rest {
				r.leave(o, "not begun")
				r.g.Node(o.ID).RetryAt = r.now().Add(r.cfg.Retry.Min)
				r.retries.fix(o.ID)
			}
			return
		}
		ops = rest
	}
}

func (r *run) level(ops []plan.Op) (rest []plan.Op) {
	jobs := r.jobs(ops)
	r.dispatch(r.ctx, jobs, r.atomic)
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
		r.resolveDoubt()
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
		if by, blocked := r.g.Obstacle(o); blocked {
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
		if last == nil || last.k != kindOf(n) || last.verb != o.Verb || len(last.ids) == r.cfg.BatchMax {
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
		it.have, it.meta = n.Have, n.Meta
	}
	if verb == Delete {
		return it
	}
	it.want, it.handles = n.Want, r.g.Handles(n)
	return it
}

// settle notes the result of one operation.
func (r *run) settle(j *job, i int, id plan.ID) {
	n := r.g.Node(id)
	rec := r.record(plan.Op{ID: id, Level: j.level, Verb: j.verb})
	rec.Batch, rec.At, rec.Took, rec.Attempt = j.number, j.at.Sub(r.began), j.took, n.Attempt
	err := j.results[i].err
	if err == nil {
		r.applied(id, j.verb, j.results[i].meta)
		rec.Outcome = outcomeApplied
		r.rec.Ops = append(r.rec.Ops, rec)
		return
	}
	rec.Err, rec.Outcome = err.Error(), Unknown.String()
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
	rec.Err, rec.Outcome = why, "skipped"
	r.rec.Ops = append(r.rec.Ops, rec)
	r.g.Skip(o.ID)
	r.left++
}

// fail notes that an operation was not done.
func (r *run) fail(id plan.ID, verb Verb, err error) {
	n := r.g.Node(id)
	var oe *OpError
	f := plan.Failure{Err: &failedOps{verb: verb, refs: []Ref{n.Ref}, cause: err}, Attempt: n.Attempt, RetryAt: n.RetryAt}
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
		f.RetryAt = r.now().Add(r.cfg.Retry.delay(f.Attempt))
	}
	r.g.Fail(id, f)
	r.retries.fix(id)
}

func (r *run) fault(err error) { r.errs = append(r.errs, err) }

// faultOf adds the failure of an object, unless only the caller of another transaction asked for it. Its record has the failure anyway.
func (r *run) faultOf(id plan.ID, err error) {
	if r.own == nil || r.own[id] {
		r.fault(err)
	}
}

// resolveDoubt reads back the objects of this level whose operations have an unknown outcome.
func (r *run) resolveDoubt() {
	ids := make([]plan.ID, len(r.doubt))
	for i, d := range r.doubt {
		ids[i] = d.id
	}
	r.readBack(context.WithoutCancel(r.ctx), ids)
	r.auditDoubtful()
	for _, d := range r.doubt {
		n := r.g.Node(d.id)
		rec := &r.rec.Ops[d.slot]
		done := d.verb == Delete && n.Have == nil || d.verb != Delete && n.InSync()
		switch {
		case n.State == plan.Doubtful:
			r.fail(d.id, d.verb, d.err)
		case done:
			rec.Outcome = "unknown; read back: applied"
			r.applied(d.id, d.verb, n.Meta)
		default:
			rec.Outcome = "unknown; read back: not applied"
			r.fail(d.id, d.verb, d.err)
		}
	}
}

// auditDoubtful schedules a resync of the kinds of operations with an unknown outcome, because such an operation may leave an object under
// another name than the one that is read back. A backend that is down is compared when it is back, and a backend with a hanging call when the
// call returned.
func (r *run) auditDoubtful() {
	var kinds []Kind
	for _, d := range r.doubt {
		k := kindOf(r.g.Node(d.id))
		if errors.Is(d.err, ErrDown) || slices.Contains(kinds, k.name) {
			continue
		}
		if l := r.lanes[k.lane]; l.hung.Load() {
			l.audit = appendKind(l.audit, k.name)
			continue
		}
		kinds = append(kinds, k.name)
	}
	if len(kinds) > 0 {
		r.post(func(st *state) { st.resyncLost(kinds) })
	}
}

// readDoubtful reads back, before planning, the dirty objects that an earlier request left Doubtful.
func (r *run) readDoubtful(dirty []plan.ID) {
	var ids []plan.ID
	for _, id := range dirty {
		if r.g.Node(id).State == plan.Doubtful {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	r.readBack(context.WithoutCancel(r.ctx), ids)
	for _, id := range ids {
		n := r.g.Node(id)
		if n.State == plan.Doubtful {
			err := n.Err
			if err == nil {
				err = fmt.Errorf("%s cannot be read back", n.Ref)
			}
			r.postpone(id, err)
			continue
		}
		r.clearError(id)
		n.Drifted = n.Want != nil && !n.InSync()
	}
	r.touched = append(r.touched, ids...)
}

// postpone plans a retry for an object that could not be read back.
func (r *run) postpone(id plan.ID, err error) {
	n := r.g.Node(id)
	n.Err = err
	r.faultOf(id, err)
	n.Attempt++
	n.RetryAt = r.now().Add(r.cfg.Retry.delay(n.Attempt))
	r.retries.fix(id)
}

// readBack reads the objects from their backends, with one call for each kind. Objects stay Doubtful if the backend does not answer.
func (r *run) readBack(ctx context.Context, ids []plan.ID) {
	slices.SortFunc(ids, func(a, b plan.ID) int {
		x, y := &r.g.Node(a).Ref, &r.g.Node(b).Ref
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	for i := 0; i < len(ids); {
		j := i
		k := kindOf(r.g.Node(ids[i]))
		for j < len(ids) && r.g.Node(ids[j]).Rules == k {
			j++
		}
		r.readKind(ctx, k, ids[i:j])
		i = j
	}
}

func (r *run) readKind(ctx context.Context, k *kind, ids []plan.ID) {
	l := r.lanes[k.lane]
	if l.hung.Load() {
		l.await(ids...)
		return
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = r.g.Node(id).Ref.Name
	}
	var there found
	var err error = context.DeadlineExceeded
	view := r.store.view()
	r.bounded(ctx, l, r.cfg.limit(len(names)), func(ctx context.Context) func() {
		f, ferr := k.readNamed(ctx, view, names)
		return func() { there, err = f, ferr }
	})
	if err != nil {
		r.cfg.Logger.Warn("read back", "kind", k.name, "objects", len(ids), "err", err)
		return
	}
	index := indexOf(there)
	for _, id := range ids {
		if i, ok := index[r.g.Node(id).Ref.Name]; ok {
			r.adopt(id, there, i)
		} else {
			r.g.Missing(id)
		}
	}
}

// readNamed reads named objects, with a dump of the kind if the backend cannot read single ones.
func (k *kind) readNamed(ctx context.Context, view View, names []string) (f found, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in backend: %v", p)
		}
	}()
	if k.read != nil {
		return k.read(ctx, view, names)
	}
	return k.dump(ctx, view)
}

func indexOf(f found) map[string]int {
	index := make(map[string]int, f.len())
	for i := range f.len() {
		index[f.head(i).name] = i
	}
	return index
}
