package kvscheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// Resync reads everything back, compares and repairs. Found objects that are ours and that no source desires are
// pruned, unless a source is not Ready or there are more than MaxPrune allows (ErrPruneGuard; everything else is
// repaired). Objects that changed while the dump ran keep their known state.
func (s *Scheduler) Resync(ctx context.Context, o ResyncOpt) (*Record, error) {
	out := make(chan reply, 1)
	began := s.cfg.Now()
	s.post(func(st *state) {
		st.startResync(ctx, resyncJob{opt: o, origin: "resync", label: o.Label, began: began, out: out})
	})
	select {
	case a := <-out:
		return a.rec, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("resync: %w", context.Cause(ctx))
	case <-s.stopped:
		return nil, ErrStopped
	}
}

type resyncJob struct {
	opt    ResyncOpt
	origin string
	label  string
	began  time.Time
	names  map[Kind]map[string]bool // nil: all objects of the kinds
	out    chan reply
}

// around returns the names, by kind, of the objects, of their direct dependencies and of all that depends on them.
func (s *state) around(refs []Ref) map[Kind]map[string]bool {
	names := make(map[Kind]map[string]bool)
	add := func(r Ref) {
		if names[r.Kind] == nil {
			names[r.Kind] = make(map[string]bool)
		}
		names[r.Kind][r.Name] = true
	}
	var ids []plan.ID
	for _, r := range refs {
		add(r)
		if id, known := s.g.Lookup(r); known {
			ids = append(ids, id)
		}
	}
	s.g.Around(ids, func(n *plan.Node) { add(n.Ref) })
	return names
}

// startResync begins the dump beside the state's goroutine; its end comes back as posted work.
func (s *state) startResync(ctx context.Context, j resyncJob) {
	if len(j.opt.Refs) > 0 {
		j.names = s.around(j.opt.Refs)
		j.opt.Kinds = slices.Sorted(maps.Keys(j.names))
	}
	kinds, err := s.backed(j.opt.Kinds)
	if err != nil {
		j.out <- reply{err: fmt.Errorf("resync: %w", err)}
		return
	}
	began := s.g.Clock
	s.g.BeginDump()
	ctx, cancel := merged(s.life, ctx)
	s.calls.pending.Add(1)
	go func() {
		defer s.calls.pending.Done()
		defer cancel()
		dumps, err := s.dumpAll(ctx, kinds, j.names)
		s.post(func(st *state) {
			rec, rerr := st.merge(j, dumps, began, err)
			j.out <- reply{rec: rec, err: rerr}
		})
	}()
}

// resyncLost reads kinds again that an abandoned call may have changed.
func (s *state) resyncLost(kinds []Kind) {
	for _, name := range kinds {
		s.lost = appendKind(s.lost, name)
	}
	if s.losing || len(s.lost) == 0 {
		return
	}
	s.losing = true
	again := slices.Sorted(slices.Values(s.lost))
	s.lost = nil
	out := make(chan reply, 1)
	s.startResync(s.life, resyncJob{opt: ResyncOpt{Kinds: again}, origin: "resync", label: "lost",
		began: s.now(), out: out})
	go func() {
		select {
		case a := <-out:
			if a.err != nil {
				s.cfg.Logger.Warn("resync of lost kinds", "err", a.err)
			}
		case <-s.stopped:
			return
		}
		s.post(func(st *state) {
			st.losing = false
			st.resyncLost(nil)
		})
	}()
}

// merge takes the dumps into the state, plans and repairs.
func (s *state) merge(j resyncJob, dumps map[Kind]found, began uint64, dumpErr error) (*Record, error) {
	s.g.EndDump()
	r := s.begin(s.life, j.origin, "drift")
	r.rec.Label = j.label
	r.rec.Event = j.opt.Event
	r.rec.Start = j.began
	r.began = j.began
	r.rec.Queued = s.now().Sub(j.began)
	if dumpErr != nil {
		r.fault(dumpErr)
	}
	if dumpErr == nil && !j.opt.DryRun && j.opt.Reopen != nil && j.opt.Reopen() {
		s.reopenLanes(dumps)
	}
	m := resync{run: r, opt: j.opt, dumps: dumps, names: j.names, began: began}
	dirty := m.differences()
	if j.opt.DryRun {
		return m.report(r.plan(dirty))
	}
	ops := r.plan(s.withSkipped(dirty))
	r.execute(ops)
	r.retreat()
	return r.finish()
}

// resync compares dumps with the graph.
type resync struct {
	*run
	opt   ResyncOpt
	dumps map[Kind]found
	names map[Kind]map[string]bool // nil: all objects of the kinds
	began uint64                   // Graph.Clock at the begin of the dumps
}

// differences takes the dumps into the graph and returns the objects that are not as desired.
func (m *resync) differences() []plan.ID {
	m.g.TakeStirred(nil) // of earlier requests
	m.adopted = m.adopted[:0]
	var dirty []plan.ID
	for _, k := range m.kindNames() {
		if m.dumps[k] != nil {
			dirty = append(dirty, m.compare(k)...)
		}
	}
	dirty = m.g.TakeStirred(dirty)
	for _, id := range m.adopted { // again, now that all candidates of Any dependencies are known
		m.g.ResolveApplied(id)
	}
	dirty = append(dirty, m.prunable()...)
	if m.opt.DryRun {
		return dirty
	}
	for id := range m.g.LeftOut { // of the kinds that were just read, or cannot be
		if k := kindOf(m.g.Node(id)); k != nil && (m.dumps[k.name] != nil || !k.backed) {
			delete(m.g.LeftOut, id)
			dirty = append(dirty, id)
		}
	}
	return dirty
}

// report records the findings of a dry run, without side effects.
func (m *resync) report(ops []plan.Op) (*Record, error) {
	m.dry = true
	m.rec.Origin = "report"
	for _, o := range ops {
		m.rec.Ops = append(m.rec.Ops, m.record(o))
		// The graph knows it now, but a neighbour's plan must not prune it, unless it was being removed before.
		if n := m.g.Node(o.ID); n.Want == nil && n.Have != nil && n.Err == nil && !m.g.LeftOut.Has(o.ID) {
			m.g.SetOrphan(o.ID, true)
		}
	}
	return m.finish()
}

// compare merges the dump of a kind, and returns the objects that are not as desired. An object that changed since the
// dump began keeps its known state: a dry run may have found it missing without a repair.
func (m *resync) compare(k Kind) []plan.ID {
	m.g.Unmark()
	return m.compareMissing(k, m.compareFound(k))
}

// compareFound merges the objects that a dump has. It does not allocate for an object that is as it was.
func (m *resync) compareFound(k Kind) (dirty []plan.ID) {
	f := m.dumps[k]
	for i := range f.len() {
		id, known := m.g.Lookup(Ref{Kind: k, Name: f.head(i).name})
		if !known {
			id = m.g.Intern(Ref{Kind: k, Name: f.head(i).name})
		}
		n := m.g.Node(id)
		m.g.Mark(n) // it was dumped
		isNewer := n.Touched > m.began
		isSame := n.There() && !n.Stale() && f.head(i).owner != Foreign && f.same(i, n.Have, n.Meta)
		if known && (isNewer || isSame) {
			dirty = ifPending(dirty, id, n)
			continue
		}
		m.drift(id, f, i)
		dirty = append(dirty, id)
	}
	return dirty
}

// compareMissing merges the objects of the kind that a dump lacks.
func (m *resync) compareMissing(k Kind, dirty []plan.ID) []plan.ID {
	names := m.names[k]
	for i, n := range m.g.Nodes() {
		id := plan.ID(i)
		if n.Ref.Kind != k || m.g.Marked(n) || names != nil && !names[n.Ref.Name] {
			continue
		}
		if n.Touched > m.began {
			dirty = ifPending(dirty, id, n)
			continue
		}
		if !n.Present() && n.Last == nil {
			if n.Want != nil && n.Err == nil { // it waits, or a dry run found it missing
				dirty = append(dirty, id)
			}
			continue
		}
		n.Drifted = n.Want != nil && n.Have != nil
		n.Last = nil
		dirty = append(dirty, m.g.RecreateMakers(n)...)
		m.g.Missing(id)
		dirty = append(dirty, id)
	}
	return dirty
}

// ifPending adds an object with a known state that is not the desired one.
func ifPending(dirty []plan.ID, id plan.ID, n *plan.Node) []plan.ID {
	if phase := n.Phase(); phase == plan.InSync || phase == plan.Foreign {
		return dirty
	}
	return append(dirty, id)
}

// adopt takes the value that a backend found as the applied value of an object.
func (s *state) adopt(id plan.ID, f found, i int) {
	n := s.g.Node(id)
	h := f.head(i)
	value, meta := f.box(i)
	if h.owner == Foreign ||
		h.owner == Unclear && n.Want == nil && n.Last == nil && (n.Have == nil || n.Foreign()) {
		s.g.FoundForeign(id, value, meta)
		return
	}
	have, proven := kindOf(n).complete(value, h, n.Have, n.Last, n.Want)
	n.Tag = h.hash
	if s.g.Found(id, have, meta, proven) {
		s.adopted = append(s.adopted, id)
	}
}

// prove completes a dumped value if its hash agreed with no value that was known then, now that another value is
// desired.
func (s *state) prove(id plan.ID) {
	n := s.g.Node(id)
	if k := kindOf(n); n.Stale() && k.hash(n.Want) == n.Tag {
		s.g.Prove(id, k.merge(n.Have, n.Want))
	}
}

// complete fills the fields of a dumped value that cannot be dumped. It takes them from the first known value (nil:
// none) with the same hash. proven is false if no hash agrees.
func (k *kind) complete(dumped any, h head, known ...any) (value any, proven bool) {
	hashed := h.hasHash && k.hashes
	for _, last := range known {
		if last != nil && (!hashed || k.hash(last) == h.hash) {
			return k.merge(dumped, last), true
		}
	}
	return dumped, !hashed
}

// defaultPrune is how many objects of a kind may be pruned without asking, whatever their share.
const defaultPrune = 16

// guard returns why so many objects must not be pruned, or an empty string.
func guard(o ResyncOpt, candidates, known int) string {
	if o.Force {
		return ""
	}
	if o.MaxPrune <= 0 {
		if candidates <= defaultPrune || candidates*2 <= known {
			return ""
		}
		return "the limit is half of them"
	}
	if float64(candidates) > o.MaxPrune*float64(known) {
		return fmt.Sprintf("the limit is %.0f %%", 100*o.MaxPrune)
	}
	return ""
}

// drift records the value that a dump found of a changed object.
func (m *resync) drift(id plan.ID, f found, i int) {
	n := m.g.Node(id)
	had := n.Have != nil
	m.adopt(id, f, i)
	n.Drifted = had && n.Want != nil && !n.Foreign() && !n.Matches()
	if n.Want == nil && !n.Foreign() && !had {
		m.g.SetOrphan(id, true)
	}
}

// prunable returns the orphans that may be deleted now.
func (m *resync) prunable() (ids []plan.ID) {
	ready := m.sources.areReady(m.cfg.Sources)
	for _, k := range m.kindNames() {
		if m.dumps[k] == nil {
			continue
		}
		candidates, known := m.orphans(k)
		if len(candidates) == 0 {
			continue
		}
		if why := guard(m.opt, len(candidates), known); !ready || why != "" {
			if ready {
				m.fault(fmt.Errorf("%w: %s: %d of %d objects would be pruned, %s", ErrPruneGuard, k, len(candidates),
					known, why))
			} else {
				why = "a source is not ready"
			}
			for _, id := range candidates {
				m.rec.Pending = append(m.rec.Pending, Why{
					Ref:     m.g.Node(id).Ref.String(),
					Missing: []string{"prune: " + why},
				})
			}
			continue
		}
		for _, id := range candidates {
			m.g.SetOrphan(id, false)
		}
		ids = append(ids, candidates...)
	}
	return m.g.TakeStirred(ids)
}

func (m *resync) orphans(k Kind) (ids []plan.ID, known int) {
	for id, n := range m.g.Nodes() {
		if n.Ref.Kind != k || n.Have == nil || n.Foreign() {
			continue
		}
		known++
		if n.Orphan {
			ids = append(ids, plan.ID(id))
		}
	}
	return ids, known
}
