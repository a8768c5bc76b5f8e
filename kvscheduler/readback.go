package kvscheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// readBack reads objects in an unknown state, for a run.
type readBack struct{ *run }

// resolveDoubt reads back the objects of this level after operations of unknown outcome.
func (r readBack) resolveDoubt() {
	ids := make([]plan.ID, len(r.doubt))
	for i, d := range r.doubt {
		ids[i] = d.id
	}
	r.read(context.WithoutCancel(r.ctx), ids)
	r.auditDoubtful()
	for _, d := range r.doubt {
		n := r.g.Node(d.id)
		rec := &r.rec.Ops[d.slot]
		done := d.verb == Delete && n.Have == nil || d.verb != Delete && n.Matches()
		switch {
		case n.Phase() == plan.Doubtful:
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

// auditDoubtful schedules a resync of the kinds of operations with an unknown outcome, because such an operation may
// leave an object under another name than the one that is read back. A backend that is down is compared when it is
// back, and a backend with a hanging call when the call returned.
func (r readBack) auditDoubtful() {
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
func (r readBack) readDoubtful(dirty []plan.ID) {
	var ids []plan.ID
	for _, id := range dirty {
		if r.g.Node(id).Phase() == plan.Doubtful {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	r.read(context.WithoutCancel(r.ctx), ids)
	for _, id := range ids {
		n := r.g.Node(id)
		if n.Phase() == plan.Doubtful {
			err := n.Err
			if err == nil {
				err = fmt.Errorf("%s cannot be read back", n.Ref)
			}
			r.postpone(id, err)
			continue
		}
		r.clearError(id)
		n.Drifted = n.Want != nil && !n.Matches()
	}
	r.touched = append(r.touched, ids...)
}

// postpone plans a retry for an object that could not be read back.
func (r readBack) postpone(id plan.ID, err error) {
	n := r.g.Node(id)
	n.Err = err
	r.faultOf(id, err)
	n.Attempt++
	n.RetryAt = r.now().Add(r.cfg.limits.retry.delay(n.Attempt))
	r.retries.fix(id)
}

// read reads the objects from their backends, with one call for each kind. Objects stay Doubtful if the backend
// does not answer.
func (r readBack) read(ctx context.Context, ids []plan.ID) {
	slices.SortFunc(ids, func(a, b plan.ID) int {
		x := &r.g.Node(a).Ref
		y := &r.g.Node(b).Ref
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

func (r readBack) readKind(ctx context.Context, k *kind, ids []plan.ID) {
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
	r.calls.bounded(ctx, l, callTimeout(len(names)), func(ctx context.Context) func() {
		f, ferr := k.readNamed(ctx, view, names)
		return func() {
			there = f
			err = ferr
		}
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
