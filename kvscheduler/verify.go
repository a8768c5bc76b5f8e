package kvscheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Verify reads the named objects back (none named: everything desired), without side effects, and returns the objects
// that are not as desired: missing, different, or present without being desired. An object that changes meanwhile is
// read again.
func (s *Scheduler) Verify(ctx context.Context, refs ...Ref) ([]Difference, error) {
	v := s.store.view()
	byKind := make(map[Kind][]string)
	for _, r := range refs {
		if s.kinds[r.Kind] == nil {
			return nil, fmt.Errorf("verify: %w of %s", ErrUnknownKind, r)
		}
		byKind[r.Kind] = append(byKind[r.Kind], r.Name)
	}
	if len(refs) == 0 {
		for name := range s.kinds {
			byKind[name] = nil // a kind without desired objects may have objects that should not exist
			v.each(name, func(e *entry) bool {
				if e.want != nil {
					byKind[name] = append(byKind[name], e.ref.Name)
				}
				return true
			})
		}
	}
	var out []Difference
	var errs []error
	for name, names := range byKind {
		diff, err := s.verifyKind(ctx, s.kinds[name], names, len(refs) == 0)
		if err != nil {
			errs = append(errs, fmt.Errorf("verify %s: %w", name, err))
		}
		out = append(out, diff...)
	}
	slices.SortFunc(out, func(a, b Difference) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return out, errors.Join(errs...)
}

// LostObjects returns the objects that wait although they were applied before, and for what. No operation on the
// machine would repair them, so a resync finds no difference.
func (s *Scheduler) LostObjects() (lost []Why) {
	v := s.store.view()
	for _, k := range s.kindNames() {
		v.each(k, func(e *entry) bool {
			if e.status.Lost {
				lost = append(lost, Why{Ref: e.ref.String(), Missing: e.status.Missing, Lost: true})
			}
			return true
		})
	}
	slices.SortFunc(lost, func(a, b Why) int { return cmp.Compare(a.Ref, b.Ref) })
	return lost
}

// verifyReads is how often an object is read that changes each time.
const verifyReads = 3

func (s *Scheduler) verifyKind(ctx context.Context, k *kind, names []string, all bool) ([]Difference, error) {
	differences, changing, err := s.verifyOnce(ctx, k, names, all)
	for reads := 1; err == nil && len(changing) > 0 && reads < verifyReads; reads++ {
		var more []Difference
		more, changing, err = s.verifyOnce(ctx, k, changing, false)
		differences = append(differences, more...)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range changing {
		differences = append(differences, Difference{
			Ref:    Ref{Kind: k.name, Name: name},
			Reason: "changes whenever it is read",
		})
	}
	return differences, nil
}

// verifyOnce compares objects once. Nothing is known about those that change meanwhile.
func (s *Scheduler) verifyOnce(
	ctx context.Context, k *kind, names []string, all bool,
) (differences []Difference, changing []string, err error) {
	v := s.store.view()
	there := make(map[string]int)
	var f found
	if k.backed {
		err = context.DeadlineExceeded
		s.calls.bounded(ctx, nil, dumpTimeout, func(ctx context.Context) func() {
			var got found
			var gerr error
			if all {
				got, gerr = k.dumped(ctx, v)
			} else {
				got, gerr = k.readNamed(ctx, v, names)
			}
			return func() {
				f = got
				err = gerr
			}
		})
		if err != nil {
			return nil, nil, err
		}
		there = indexOf(f)
	}
	if all {
		names = withUnexpected(names, f)
	}
	later := s.store.view()
	for _, name := range names {
		ref := Ref{Kind: k.name, Name: name}
		e := v.entry(ref)
		if e != later.entry(ref) {
			changing = append(changing, name)
			continue
		}
		if d, differs := k.difference(ref, e, f, there); differs {
			differences = append(differences, d)
		}
	}
	return differences, changing, nil
}

func withUnexpected(names []string, f found) []string {
	if f == nil {
		return names
	}
	have := make(map[string]bool, len(names))
	for _, n := range names {
		have[n] = true
	}
	for i := range f.len() {
		if h := f.head(i); !have[h.name] && h.owner == Ours {
			names = append(names, h.name)
		}
	}
	return names
}

// difference compares one desired object with the found one.
func (k *kind) difference(ref Ref, e *entry, f found, there map[string]int) (Difference, bool) {
	d := Difference{Ref: ref}
	var want, applied any
	if e != nil {
		want = e.want
		applied = e.have
		d.Want = k.redact(want)
	}
	i, exists := there[ref.Name]
	switch {
	case !k.backed:
		d.Reason = "missing"
		d.Have = k.redact(applied)
		return d, want != nil && applied == nil
	case !exists:
		d.Reason = "missing"
		return d, want != nil
	}
	h := f.head(i)
	value, _ := f.box(i)
	have, proven := k.complete(value, h, applied, want)
	d.Have = k.redact(have)
	switch {
	case want == nil:
		d.Reason = "there, but not desired"
		return d, h.owner == Ours
	case h.owner == Foreign:
		d.Reason = "held by an object that is not ours"
	case !proven:
		d.Reason = "stored hash differs"
	case k.recreate(have, want):
		d.Reason = "value differs, needs to be recreated"
	default:
		d.Reason = "value differs"
	}
	return d, h.owner == Foreign || !proven || !k.equal(want, have)
}

// Comparison is one object as it is desired, as it is last known, and as it was read back. Values are redacted; nil
// means absent.
type Comparison struct {
	Ref                    Ref
	Want, Applied, Machine any
	Unread                 bool   // Machine is not known: the kind has no backend, or reading it failed
	Moving                 bool   // the object changed while it was read
	Reason                 string // why it is not as desired; empty if it is, as far as it was read
}

// Compare reads the named objects back (none named: all objects, also those that no source desires), without side
// effects. It runs in the goroutine of its caller, like the reads of a resync, so that transactions go on meanwhile.
// The error joins one for each kind that was not read; the comparisons are complete nevertheless, with the objects of
// such a kind as Unread. A read ends with ctx, and after dumpTimeout.
func (s *Scheduler) Compare(ctx context.Context, refs ...Ref) ([]Comparison, error) {
	v := s.store.view()
	names := make(map[Kind]map[string]bool)
	for _, r := range refs {
		if s.kinds[r.Kind] == nil {
			return nil, fmt.Errorf("compare: %w of %s", ErrUnknownKind, r)
		}
		if names[r.Kind] == nil {
			names[r.Kind] = make(map[string]bool)
		}
		names[r.Kind][r.Name] = true
	}
	kinds, err := s.backed(slices.Sorted(maps.Keys(names))) // none: all
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	dumps, err := s.dumpAll(ctx, kinds, names)
	c := comparing{Scheduler: s, before: v, after: s.store.view(), dumps: dumps}
	if len(refs) == 0 {
		refs = c.all()
	}
	out := make([]Comparison, 0, len(refs))
	for _, r := range refs {
		out = append(out, c.compare(r))
	}
	slices.SortFunc(out, func(a, b Comparison) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return slices.CompactFunc(out, func(a, b Comparison) bool { return a.Ref == b.Ref }), err
}

// comparing is one call of Compare, with the snapshots from before and after the reads.
type comparing struct {
	*Scheduler
	before, after *snapshot
	dumps         map[Kind]found
	index         map[Kind]map[string]int
}

// all returns the known objects, and the objects of Weft that were found.
func (c *comparing) all() (refs []Ref) {
	for name := range c.kinds {
		c.before.each(name, func(e *entry) bool {
			refs = append(refs, e.ref)
			return true
		})
		f := c.dumps[name]
		if f == nil {
			continue
		}
		for i := range f.len() {
			if h := f.head(i); h.owner == Ours {
				refs = append(refs, Ref{Kind: name, Name: h.name})
			}
		}
	}
	return refs
}

func (c *comparing) compare(r Ref) Comparison {
	k := c.kinds[r.Kind]
	f := c.dumps[r.Kind]
	e := c.before.entry(r)
	out := Comparison{Ref: r, Unread: f == nil, Moving: e != c.after.entry(r)}
	if e != nil {
		out.Want = k.redact(e.want)
		out.Applied = k.redact(e.have)
	}
	if f == nil {
		out.Reason = k.knownDifference(e)
		return out
	}
	d, differs := k.difference(r, e, f, c.indexOf(r.Kind))
	if out.Machine = d.Have; differs {
		out.Reason = d.Reason
	}
	return out
}

// indexOf returns the positions of the found objects of a kind, by name.
func (c *comparing) indexOf(k Kind) map[string]int {
	if c.index == nil {
		c.index = make(map[Kind]map[string]int)
	}
	if c.index[k] == nil {
		c.index[k] = indexOf(c.dumps[k])
	}
	return c.index[k]
}

// knownDifference compares an object as it is known, without the machine.
func (k *kind) knownDifference(e *entry) string {
	switch {
	case e == nil || e.want == nil && e.have == nil:
		return ""
	case e.want == nil && e.foreign, e.want == nil && !k.backed:
		return ""
	case e.want == nil:
		return "applied, but not desired"
	case e.have == nil:
		return "not applied"
	case !k.equal(e.want, e.have):
		return "applied value differs"
	}
	return ""
}
