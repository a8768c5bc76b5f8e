package kvscheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Resync reads everything back, compares and repairs. Found objects that are ours and that no source desires are pruned,
// unless a source is not Ready or there are more than MaxPrune allows (ErrPruneGuard; everything else is repaired).
// Objects that changed while the dump ran are left to what is known of them.
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
	add := func(r Ref) bool {
		if names[r.Kind] == nil {
			names[r.Kind] = make(map[string]bool)
		}
		seen := names[r.Kind][r.Name]
		names[r.Kind][r.Name] = true
		return !seen
	}
	var queue []int32
	for _, r := range refs {
		if id, known := s.g.ids[r]; add(r) && known {
			queue = append(queue, id)
		}
	}
	for _, id := range slices.Clone(queue) {
		for _, edges := range s.g.nodes[id].deps {
			for _, e := range edges {
				add(s.g.nodes[e.to].ref)
			}
		}
	}
	walked := make(map[int32]bool)
	for ; len(queue) > 0; queue = queue[1:] {
		if walked[queue[0]] {
			continue
		}
		walked[queue[0]] = true
		for _, back := range s.g.nodes[queue[0]].rdeps {
			for _, r := range back {
				add(s.g.nodes[r.from].ref)
				queue = append(queue, r.from)
			}
		}
	}
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
	epoch := s.clock
	s.g.dumps++
	ctx, cancel := merged(s.life, ctx)
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		defer cancel()
		dumps, err := s.dumpAll(ctx, kinds, j.names)
		s.post(func(st *state) {
			rec, rerr := st.merge(j, dumps, epoch, err)
			j.out <- reply{rec: rec, err: rerr}
		})
	}()
}

// resyncLost opens the lanes of kinds whose events may have been missed and reads the kinds again.
func (s *state) resyncLost(kinds []Kind) {
	for _, name := range kinds {
		if k := s.kinds[name]; k != nil {
			s.lanes[k.lane].paused = false
			s.reopen(s.lanes[k.lane])
		}
	}
	s.lost = append(s.lost, kinds...)
	if s.losing || len(s.lost) == 0 {
		return
	}
	s.losing = true
	again := slices.Compact(slices.Sorted(slices.Values(s.lost)))
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
func (s *state) merge(j resyncJob, dumps map[Kind]found, epoch uint64, dumpErr error) (*Record, error) {
	s.g.dumps--
	r := s.begin(s.life, j.origin, "drift")
	r.rec.Label, r.rec.Event, r.rec.Start, r.began = j.label, j.opt.Event, j.began, j.began
	r.rec.Queued = s.now().Sub(j.began)
	if dumpErr != nil {
		r.fault(dumpErr)
	}
	if dumpErr == nil && !j.opt.DryRun && j.opt.Reopen != nil && j.opt.Reopen() {
		s.reopenLanes(dumps)
	}
	s.g.stirred, s.adopted = s.g.stirred[:0], s.adopted[:0]
	var dirty []int32
	for _, k := range s.kindNames() {
		if f := dumps[k]; f != nil {
			dirty = append(dirty, s.compare(k, f, j.names[k], epoch)...)
		}
	}
	dirty = append(dirty, s.g.stirred...)
	for _, id := range s.adopted { // edges once more, now that all candidates of Any dependencies are known
		if n := s.g.nodes[id]; n.have != nil && !n.foreign && len(n.anyDeps[applied]) > 0 {
			s.haveEdges(id)
		}
	}
	dirty = append(dirty, s.prunable(r, j.opt, dumps)...)
	if !j.opt.DryRun {
		dirty = s.withStaged(dirty, dumps)
	}
	if j.opt.DryRun {
		return r.dryResync(r.plan(dirty))
	}
	ops := r.plan(s.withSkipped(dirty))
	r.execute(ops)
	return r.finish()
}

func (r *run) dryResync(ops []op) (*Record, error) {
	r.dry, r.rec.Origin = true, "report"
	for _, o := range ops {
		r.rec.Ops = append(r.rec.Ops, r.record(o))
		// What was found is known now, but not to be pruned by a neighbour's plan; what was being removed still is.
		if n := r.g.nodes[o.id]; n.want == nil && n.have != nil && n.err == nil && !n.skipped {
			n.orphan = true
			r.g.member(o.id)
		}
	}
	return r.finish()
}

// compare merges one kind's dump, or what was found of the objects with these names, and returns what is not as desired. Of an object
// that changed while the dump ran it takes nothing: a dry run may have found it missing, and repairs nothing.
// Without drift it allocates nothing per object.
func (s *state) compare(k Kind, f found, names map[string]bool, epoch uint64) (dirty []int32) {
	s.g.epoch++ // marks what was dumped
	for i := range f.len() {
		id, known := s.g.ids[Ref{k, f.head(i).name}]
		if known {
			n := s.g.nodes[id]
			n.mark = s.g.epoch
			if n.touched > epoch {
				dirty = s.ifPending(dirty, id)
				continue
			}
			if n.have != nil && !n.unknown && !n.stale && f.same(i, n.have, n.meta) && f.head(i).owner != Foreign {
				dirty = s.ifPending(dirty, id)
				continue
			}
		} else {
			id = s.g.intern(Ref{k, f.head(i).name})
			s.g.nodes[id].mark = s.g.epoch
		}
		dirty = append(dirty, s.drift(id, f, i))
	}
	for _, n := range s.g.nodes {
		if n.ref.Kind != k || n.mark == s.g.epoch || names != nil && !names[n.ref.Name] {
			continue
		}
		id := s.g.ids[n.ref]
		if n.touched > epoch {
			dirty = s.ifPending(dirty, id)
			continue
		}
		if !n.present() && n.last == nil {
			if n.want != nil && n.err == nil { // waits, or was found missing by a dry run, which mends nothing
				dirty = append(dirty, id)
			}
			continue
		}
		n.drifted = n.want != nil && n.have != nil
		n.last = nil
		dirty = append(dirty, s.makers(n)...)
		s.missing(id)
		dirty = append(dirty, id)
	}
	return dirty
}

// ifPending adds an object whose known state is not the desired one.
func (s *state) ifPending(dirty []int32, id int32) []int32 {
	n := s.g.nodes[id]
	if n.orphan || n.haveRev != n.wantRev || n.err != nil || n.drifted || n.again || n.want == nil && !n.foreign {
		return append(dirty, id)
	}
	return dirty
}

// makers returns the objects that have to be recreated for a missing one to come back.
func (s *state) makers(missing *node) (ids []int32) {
	if missing.want == nil {
		return nil
	}
	for _, e := range missing.deps[wanted] {
		if t := s.g.nodes[e.to]; e.mode == Part && t.have != nil && !t.foreign {
			t.again = true
			ids = append(ids, e.to)
		}
	}
	return ids
}

func (s *state) drift(id int32, f found, i int) int32 {
	n := s.g.nodes[id]
	had := n.have != nil
	n.mark = s.g.epoch
	s.adopt(id, f, i)
	n.drifted = had && n.want != nil && !n.foreign && !n.inSync()
	if n.want == nil && !n.foreign && !had {
		n.orphan = true
		s.g.member(id)
	}
	return id
}
