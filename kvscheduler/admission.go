package kvscheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weftnet/weft/kvscheduler/plan"
)

// desire is a desired value that is not staged yet.
type desire struct {
	ref     Ref
	v       any
	invalid error
}

// admission checks a transaction and stages it in the graph. If it fails, the graph is as before.
type admission struct {
	*state
	txn     Txn
	removed []plan.ID
	desires []desire
	undo    []former
	dirty   []plan.ID
	changed int
	invalid []error
}

// admit validates the values of a transaction, checks ownership and cycles, and stages the values in the graph.
func (s *state) admit(t Txn) (*admission, error) {
	a := &admission{state: s, txn: t}
	s.g.TakeStirred(nil) // of earlier requests
	if err := a.expand(); err != nil {
		return a, err
	}
	a.stage()
	a.dirty = s.g.TakeStirred(a.dirty)
	if err := s.g.Cycle(a.dirty); err != nil {
		a.unstage()
		return a, err
	}
	return a, nil
}

// expand validates the values of the transaction, and finds the objects that it removes.
func (a *admission) expand() error {
	set := slices.Clone(a.txn.Set)
	slices.SortFunc(set, func(x, y Object) int {
		return cmp.Or(cmp.Compare(x.Ref.Kind, y.Ref.Kind), cmp.Compare(x.Ref.Name, y.Ref.Name))
	})
	asked := make(map[Ref]bool, len(set))
	for _, o := range set {
		if a.kinds[o.Ref.Kind] == nil {
			return fmt.Errorf("%w of %s", ErrUnknownKind, o.Ref)
		}
		if asked[o.Ref] {
			return fmt.Errorf("%s is twice in the transaction: %w", o.Ref, ErrConflict)
		}
		asked[o.Ref] = true
		if err := a.ask(o); err != nil {
			return err
		}
	}
	if a.txn.Replace {
		for id := range a.sources.owned[a.txn.Source] {
			if !asked[a.g.Node(id).Ref] {
				a.removed = append(a.removed, id)
			}
		}
		slices.Sort(a.removed)
	}
	return a.refuse()
}

// refuse ends the admission of an atomic transaction with invalid values.
func (a *admission) refuse() error {
	for _, d := range a.desires {
		if d.invalid != nil {
			a.invalid = append(a.invalid, fmt.Errorf("%w: %s: %w", ErrInvalid, d.ref, d.invalid))
		}
	}
	if a.txn.Mode == Atomic {
		return errors.Join(a.invalid...)
	}
	return nil
}

func (a *admission) ask(o Object) error {
	id, known := a.g.Lookup(o.Ref)
	if known {
		n := a.g.Node(id)
		if n.Want != nil && n.Source != a.txn.Source {
			return fmt.Errorf("%s belongs to source %q: %w", o.Ref, n.Source, ErrConflict)
		}
	}
	switch {
	case o.Value == nil && known && a.g.Node(id).Want != nil:
		a.removed = append(a.removed, id)
	case o.Value == nil:
	case known && a.identical(id, o.Value):
		a.retry(id)
	default:
		return a.desire(o)
	}
	return nil
}

// identical reports whether a value is the desired one in all that a descriptor may read. Rules.Equal does not say so:
// it may ignore what Deps and Bucket read.
func (a *admission) identical(id plan.ID, v any) bool {
	n := a.g.Node(id)
	return n.Desired() && reflect.ValueOf(v).Comparable() && v == n.Want
}

// needsNothing reports whether a value that may have other dependencies is applied by the operation that applies the
// desired one.
func (a *admission) needsNothing(id plan.ID, v any) bool {
	n := a.g.Node(id)
	return n.Desired() && n.Rules.Equal(v, n.Want)
}

// retry makes a value that was set again, but is not applied, due at once.
func (a *admission) retry(id plan.ID) {
	if isDue(a.g.Node(id)) {
		a.dirty = append(a.dirty, id)
	}
}

// isDue reports whether the desired value is not applied yet, or its last operation failed.
func isDue(n *plan.Node) bool { return n.HaveRev != n.WantRev || n.Err != nil }

func (a *admission) desire(o Object) error {
	k := a.kinds[o.Ref.Kind]
	if err := k.check(o.Ref, o.Value); err != nil {
		return err
	}
	a.desires = append(a.desires, desire{ref: o.Ref, v: o.Value, invalid: k.validate(o.Ref.Name, o.Value)})
	return nil
}

// former is the desired value of a node before it was staged.
type former struct {
	id plan.ID
	plan.Desire
}

// stage writes the desired values into the graph, removals first.
func (a *admission) stage() {
	for _, id := range a.removed {
		a.remember(id)
		a.setWant(id, desire{})
		a.dirty = append(a.dirty, id)
		a.changed++
	}
	for _, d := range a.desires {
		a.put(d)
	}
}

func (a *admission) put(d desire) {
	id := a.g.Intern(d.ref)
	n := a.g.Node(id)
	same := d.invalid == nil && a.needsNothing(id, d.v)
	a.remember(id)
	if !same {
		a.changed++
	}
	wasDue := isDue(n)
	moved := a.setWant(id, d)
	if same {
		n.WantRev = a.undo[len(a.undo)-1].WantRev
	}
	if !same || wasDue || moved {
		a.dirty = append(a.dirty, id)
	}
}

func (a *admission) remember(id plan.ID) {
	a.undo = append(a.undo, former{id: id, Desire: a.g.Node(id).Desire})
}

// setWant writes one desired value with its edges, bucket and owner. It reports whether the object depends on other
// objects than before.
func (a *admission) setWant(id plan.ID, d desire) (moved bool) {
	return a.setDesire(id, plan.Desire{Want: d.v, WantRev: a.rev + 1, Source: a.txn.Source, Invalid: d.invalid})
}

// setDesire is the only function that changes the desired value of an object.
func (s *state) setDesire(id plan.ID, d plan.Desire) (moved bool) {
	s.sources.disown(s.g.Node(id), id)
	moved = s.g.SetDesire(id, d)
	s.prove(id)
	s.sources.own(s.g.Node(id), id)
	s.retries.fix(id)
	return moved
}

// unstage restores the desired values from before the admission.
func (a *admission) unstage() {
	for i := len(a.undo) - 1; i >= 0; i-- {
		a.setDesire(a.undo[i].id, a.undo[i].Desire)
	}
	ids := make([]plan.ID, len(a.undo))
	for i, f := range a.undo {
		ids[i] = f.id
	}
	a.g.Sweep(ids)
}

// Stage changes the desired state without executing operations: the next Resync reads the machine back and repairs the
// difference. A start of the agent uses it, so that existing objects are found before any is made. Stage is best
// effort: an invalid value becomes Invalid, is named in the error, and the rest is staged.
func (s *Scheduler) Stage(ctx context.Context, t Txn) error {
	t.Mode = BestEffort
	_, err := s.request(ctx, t, (*state).stageOnly)
	return err
}

func (s *state) stageOnly(_ context.Context, q *request) (*Record, error) {
	a, err := s.admit(q.txn)
	if err != nil {
		return nil, err
	}
	s.rev++
	ids := make([]plan.ID, 0, len(a.undo)+len(a.dirty))
	for _, f := range a.undo {
		ids = append(ids, f.id)
	}
	for _, id := range a.dirty {
		s.g.LeftOut.Add(id)
		ids = append(ids, id)
	}
	s.publish(ids)
	return nil, joined(a.invalid)
}
