package kvscheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
)

// Comparison is one object as it is desired, as it is last known, and as it was read back. Values are redacted; nil means absent.
type Comparison struct {
	Ref                    Ref
	Want, Applied, Machine any
	Unread                 bool   // Machine is not known: the kind has no backend, or reading it failed
	Moving                 bool   // the object changed while it was read
	Reason                 string // why it is not as desired; empty if it is, as far as it was read
}

// Compare reads the named objects back (none named: all objects, also those that no source desires) and changes nothing. It runs in the
// goroutine of its caller, like the reads of a resync, so that transactions go on meanwhile. The error joins one for each kind that was not
// read; the comparisons are complete nevertheless, with the objects of such a kind as Unread. A read ends with ctx, and after
// Config.DumpTimeout.
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

// all returns the known objects, and those of Weft that were found.
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
	k, f, e := c.kinds[r.Kind], c.dumps[r.Kind], c.before.entry(r)
	out := Comparison{Ref: r, Unread: f == nil, Moving: e != c.after.entry(r)}
	if e != nil {
		out.Want, out.Applied = k.redact(e.want), k.redact(e.have)
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
