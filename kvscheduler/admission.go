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

// maxDerived is the maximum depth of derived values. A deeper chain means that a Derive function derives from its own result.
const maxDerived = 32

// desire is a desired value that is not staged yet. The values derived from it follow it in the list.
type desire struct {
	ref     Ref
	v       any
	parent  int // index of the desire it derives from; -1: asked for
	invalid error
}

// admission checks a transaction and stages it in the graph. If it fails, the graph is as before.
type admission struct {
	*state
	txn     Txn
	removed []plan.ID // roots to remove
	desires []desire  // parents before children
	undo    []former
	adrift  map[plan.ID]bool // children between two parents
	dirty   []plan.ID
	changed int
	invalid []error
}

// admit validates and derives the values of a transaction, checks ownership and cycles, and stages the values in the graph.
func (s *state) admit(t Txn) (*admission, error) {
	a := &admission{state: s, txn: t, adrift: make(map[plan.ID]bool)}
	s.g.TakeStirred(nil) // those of earlier requests
	if err := a.expand(); err != nil {
		return a, err
	}
	if err := a.stage(); err != nil {
		a.unstage()
		return a, err
	}
	a.dirty = s.g.TakeStirred(a.dirty)
	if err := s.g.Cycle(a.dirty); err != nil {
		a.unstage()
		return a, err
	}
	return a, nil
}

// expand validates the values of the transaction and derives all further values.
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
		for id := range a.owned[a.txn.Source] {
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
		if n.Want != nil && n.Parent >= 0 {
			return fmt.Errorf("%s is derived from %s: %w", o.Ref, a.g.Node(n.Parent).Ref, ErrConflict)
		}
		if n.Want != nil && n.Source != a.txn.Source {
			return fmt.Errorf("%s belongs to source %q: %w", o.Ref, n.Source, ErrConflict)
		}
	}
	switch {
	case o.v == nil && known && a.g.Node(id).Want != nil:
		a.removed = append(a.removed, id)
	case o.v == nil:
	case known && a.identical(id, o.v):
		a.retry(id)
	default:
		return a.derive(desire{ref: o.Ref, v: o.v, parent: -1}, 0)
	}
	return nil
}

// identical reports whether a value is the desired one in all that a descriptor may read. Rules.Equal does not say so: it may ignore what
// Deps, Bucket and Derive read.
func (a *admission) identical(id plan.ID, v any) bool {
	n := a.g.Node(id)
	return n.Desired() && reflect.ValueOf(v).Comparable() && v == n.Want
}

// needsNothing reports whether a value that may have other dependencies is applied by the operation that applies the desired one.
func (a *admission) needsNothing(id plan.ID, v any) bool {
	n := a.g.Node(id)
	return n.Desired() && n.Rules.Equal(v, n.Want)
}

// retry makes a value that was set again, but is not applied, due at once, together with the values derived from it.
func (a *admission) retry(id plan.ID) {
	n := a.g.Node(id)
	if n.HaveRev != n.WantRev || n.Err != nil {
		a.dirty = append(a.dirty, id)
	}
	for _, c := range n.Children {
		a.retry(c)
	}
}

func (a *admission) derive(d desire, depth int) error {
	k := a.kinds[d.ref.Kind]
	if k == nil {
		return fmt.Errorf("%w of %s, derived from %s", ErrUnknownKind, d.ref, a.desires[d.parent].ref)
	}
	if depth > maxDerived {
		return fmt.Errorf("%s derives without end: %w", d.ref, ErrCycle)
	}
	if err := k.check(d.ref, d.v); err != nil {
		return err
	}
	d.invalid = k.validate(d.ref.Name, d.v)
	a.desires = append(a.desires, d)
	if d.invalid != nil {
		return nil //nolint:nilerr // it is kept with the desire: only an atomic transaction is refused for it
	}
	self := len(a.desires) - 1
	for _, c := range k.derive(d.ref.Name, d.v) {
		if c.v == nil {
			continue
		}
		if err := a.derive(desire{ref: c.Ref, v: c.v, parent: self}, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// former is what was desired of a node before it was staged.
type former struct {
	id plan.ID
	plan.Desire
}

// stage writes the desired values into the graph, removals first, so that a child may change its parent and a key its role within one
// transaction.
func (a *admission) stage() error {
	for _, id := range a.removed {
		a.remove(id, nil)
	}
	keep := make(map[Ref]bool, len(a.desires))
	for _, d := range a.desires {
		if keep[d.ref] {
			return fmt.Errorf("%s is derived twice: %w", d.ref, ErrConflict)
		}
		keep[d.ref] = true
	}
	for _, d := range a.desires {
		if id, known := a.g.Lookup(d.ref); known && d.parent < 0 {
			for _, c := range slices.Clone(a.g.Node(id).Children) {
				a.remove(c, keep)
			}
		}
	}
	ids := make([]plan.ID, len(a.desires))
	for i, d := range a.desires {
		id, err := a.put(d, ids)
		if err != nil {
			return err
		}
		ids[i] = id
	}
	return nil
}

// remove removes a desired value and the values derived from it. Children that will be derived again keep their value for the comparison,
// but lose their parent.
func (a *admission) remove(id plan.ID, keep map[Ref]bool) {
	n := a.g.Node(id)
	children := slices.Clone(n.Children)
	a.remember(id)
	n.Children = nil
	if keep[n.Ref] {
		n.Parent = -1
		a.adrift[id] = true
	} else {
		a.setWant(id, desire{ref: n.Ref}, -1)
		a.dirty = append(a.dirty, id)
		a.changed++
	}
	for _, c := range children {
		a.remove(c, keep)
	}
}

func (a *admission) put(d desire, ids []plan.ID) (plan.ID, error) {
	id := a.g.Intern(d.ref)
	n := a.g.Node(id)
	parent := plan.ID(-1)
	if d.parent >= 0 {
		parent = ids[d.parent]
	}
	if n.Want != nil && !a.adrift[id] && d.parent >= 0 {
		return 0, fmt.Errorf("%s, derived from %s, is desired already: %w", d.ref, a.g.Node(parent).Ref, ErrConflict)
	}
	delete(a.adrift, id)
	same := d.invalid == nil && a.needsNothing(id, d.v)
	a.remember(id)
	n.Children = nil
	if parent >= 0 {
		p := a.g.Node(parent)
		p.Children = append(p.Children, id)
	}
	if !same {
		a.changed++
	}
	isDue := n.HaveRev != n.WantRev || n.Err != nil
	moved := a.setWant(id, d, parent)
	if same {
		n.WantRev = a.undo[len(a.undo)-1].WantRev
	}
	if !same || isDue || moved {
		a.dirty = append(a.dirty, id)
	}
	return id, nil
}

func (a *admission) remember(id plan.ID) {
	a.undo = append(a.undo, former{id: id, Desire: a.g.Node(id).Desire})
}

// setWant writes one desired value with its edges, bucket and owner. It reports whether the object depends on other objects than before.
func (a *admission) setWant(id plan.ID, d desire, parent plan.ID) (moved bool) {
	n := a.g.Node(id)
	return a.setDesire(id, plan.Desire{Want: d.v, WantRev: a.rev + 1, Source: a.txn.Source, Parent: parent, Children: n.Children,
		Invalid: d.invalid})
}

// setDesire is the only function that changes what is desired of an object.
func (s *state) setDesire(id plan.ID, d plan.Desire) (moved bool) {
	s.disown(id)
	moved = s.g.SetDesire(id, d)
	s.prove(id)
	s.own(id)
	s.retries.fix(id)
	return moved
}

func (s *state) own(id plan.ID) {
	n := s.g.Node(id)
	if n.Want == nil || n.Parent >= 0 {
		return
	}
	if s.owned[n.Source] == nil {
		s.owned[n.Source] = make(map[plan.ID]struct{})
	}
	s.owned[n.Source][id] = struct{}{}
}

func (s *state) disown(id plan.ID) {
	n := s.g.Node(id)
	delete(s.owned[n.Source], id)
	if len(s.owned[n.Source]) == 0 {
		delete(s.owned, n.Source)
	}
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

// Stage changes the desired state and executes nothing: the next Resync reads the machine back and repairs the difference. A start of the
// agent uses it, so that existing objects are found before any is made. Stage is best effort: an invalid value becomes Invalid, is named in
// the error, and the rest is staged.
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
		s.g.Skip(id)
		ids = append(ids, id)
	}
	s.publish(ids)
	return nil, joined(a.invalid)
}

// Redacted returns a value without its secrets, for logs and operators.
func (s *Scheduler) Redacted(ref Ref, value any) any {
	if k := s.kinds[ref.Kind]; k != nil && value != nil {
		return k.redact(value)
	}
	return value
}
