package kvscheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// resolveDoubt reads back the objects of this level whose operations have an unknown outcome.
func (r *run) resolveDoubt() {
	ids := make([]int32, len(r.doubt))
	for i, d := range r.doubt {
		ids[i] = d.id
	}
	r.readBack(context.WithoutCancel(r.ctx), ids)
	r.auditDoubtful()
	for _, d := range r.doubt {
		n := r.g.nodes[d.id]
		rec := &r.rec.Ops[d.slot]
		done := d.verb == Delete && n.have == nil || d.verb != Delete && n.inSync()
		switch {
		case n.unknown:
			r.fail(d.id, d.verb, d.err)
		case done:
			rec.Outcome = "unknown; read back: applied"
			r.applied(d.id, d.verb, n.meta)
		default:
			rec.Outcome = "unknown; read back: not applied"
			r.fail(d.id, d.verb, d.err)
		}
	}
}

// auditDoubtful has the kinds of operations with an unknown outcome compared as a whole soon: an operation may leave an
// object under another name than the one that is read back. A backend that is down is compared when it is back, and one with
// a call that hangs when that has returned.
func (r *run) auditDoubtful() {
	var kinds []Kind
	for _, d := range r.doubt {
		k := r.g.nodes[d.id].k
		if errors.Is(d.err, ErrDown) || slices.Contains(kinds, k.name) {
			continue
		}
		if l := r.lanes[k.lane]; l.hung.Load() {
			l.audit = append(l.audit, k.name)
			continue
		}
		kinds = append(kinds, k.name)
	}
	if len(kinds) > 0 {
		r.post(func(st *state) { st.resyncLost(kinds) })
	}
}

// readDoubtful reads back, before planning, those of the dirty objects whose state is not known since an earlier request.
func (r *run) readDoubtful(dirty []int32) {
	var ids []int32
	for _, id := range dirty {
		if r.g.nodes[id].unknown {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	r.readBack(context.WithoutCancel(r.ctx), ids)
	for _, id := range ids {
		n := r.g.nodes[id]
		if n.unknown {
			err := n.err
			if err == nil {
				err = fmt.Errorf("%s cannot be read back", n.ref)
			}
			r.postpone(id, err)
			continue
		}
		r.clearError(id)
		n.drifted = n.want != nil && !n.inSync()
	}
	r.touched = append(r.touched, ids...)
}

// postpone plans a retry for an object that could not be read back.
func (r *run) postpone(id int32, err error) {
	n := r.g.nodes[id]
	n.err = err
	r.fault(err)
	n.attempt++
	n.retryAt = r.now().Add(r.cfg.Retry.delay(n.attempt))
	r.retries.fix(id)
}

// readBack asks the backends what there is, one call for each kind. Objects stay unknown if nobody answers.
func (r *run) readBack(ctx context.Context, ids []int32) {
	slices.SortFunc(ids, func(a, b int32) int {
		x, y := &r.g.nodes[a].ref, &r.g.nodes[b].ref
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	for i := 0; i < len(ids); {
		j := i
		k := r.g.nodes[ids[i]].k
		for j < len(ids) && r.g.nodes[ids[j]].k == k {
			j++
		}
		r.readKind(ctx, k, ids[i:j])
		i = j
	}
}

func (r *run) readKind(ctx context.Context, k *kind, ids []int32) {
	l := r.lanes[k.lane]
	if l.hung.Load() {
		l.idle = append(l.idle, ids...)
		return
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = r.g.nodes[id].ref.Name
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
		if i, ok := index[r.g.nodes[id].ref.Name]; ok {
			r.adopt(id, there, i)
		} else {
			r.missing(id)
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
