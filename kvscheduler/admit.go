package kvscheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// maxDerived bounds how deep values may derive from each other: more is a Derive that calls for itself.
const maxDerived = 32

// desire is a desired value on its way into the graph, with everything that was derived from it behind it.
type desire struct {
	ref     Ref
	v       any
	parent  int // index of the desire it derives from; -1: asked for
	invalid error
}

// admission checks a transaction against the graph and stages it there. Nothing stays behind if it fails.
type admission struct {
	*state
	txn     Txn
	removed []int32  // roots to remove
	desires []desire // parents before children
	undo    []former
	adrift  map[int32]bool // children between two parents
	dirty   []int32
	changed int
	invalid []error
}

// admit validates, derives, checks ownership and cycles, and stages the desired values.
func (s *state) admit(t Txn) (*admission, error) {
	a := &admission{state: s, txn: t, adrift: make(map[int32]bool)}
	s.g.stirred = s.g.stirred[:0]
	if err := a.expand(); err != nil {
		return a, err
	}
	if err := a.stage(); err != nil {
		a.unstage()
		return a, err
	}
	a.dirty = append(a.dirty, s.g.stirred...)
	if err := s.g.cycle(a.dirty); err != nil {
		a.unstage()
		return a, err
	}
	return a, nil
}

// expand sorts out what is asked for, validates it and derives to the end.
func (a *admission) expand() error {
	set := slices.Clone(a.txn.Set)
	slices.SortFunc(set, func(x, y Object) int {
		return cmp.Or(cmp.Compare(x.Ref.Kind, y.Ref.Kind), cmp.Compare(x.Ref.Name, y.Ref.Name))
	})
	asked := make(map[Ref]bool, len(set))
	for _, o := range set {
		if a.g.kinds[o.Ref.Kind] == nil {
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
			if !asked[a.g.nodes[id].ref] {
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
	id, known := a.g.ids[o.Ref]
	if known {
		n := a.g.nodes[id]
		if n.want != nil && n.parent >= 0 {
			return fmt.Errorf("%s is derived from %s: %w", o.Ref, a.g.nodes[n.parent].ref, ErrConflict)
		}
		if n.want != nil && n.source != a.txn.Source {
			return fmt.Errorf("%s belongs to source %q: %w", o.Ref, n.source, ErrConflict)
		}
	}
	switch {
	case o.v == nil && known && a.g.nodes[id].want != nil:
		a.removed = append(a.removed, id)
	case o.v == nil:
	case known && a.unchanged(id, o.v):
		a.retry(id)
	default:
		return a.derive(desire{ref: o.Ref, v: o.v, parent: -1}, 0)
	}
	return nil
}

func (a *admission) unchanged(id int32, v any) bool {
	n := a.g.nodes[id]
	return n.want != nil && n.invalid == nil && n.k.equal(v, n.want)
}

// retry makes a value that is set again, and is not applied, due at once, with what was derived from it.
func (a *admission) retry(id int32) {
	n := a.g.nodes[id]
	if n.haveRev != n.wantRev || n.err != nil {
		a.dirty = append(a.dirty, id)
	}
	for _, c := range n.children {
		a.retry(c)
	}
}

func (a *admission) derive(d desire, depth int) error {
	k := a.g.kinds[d.ref.Kind]
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
