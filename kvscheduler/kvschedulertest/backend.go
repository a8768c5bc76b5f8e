package kvschedulertest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"strings"

	"github.com/weftnet/weft/kvscheduler"
)

// Backend does the operations of one kind on a machine.
type Backend struct {
	m    *Machine
	kind kvscheduler.Kind
}

type item = kvscheduler.Item[Thing, int]

type actual = kvscheduler.Actual[Thing, int]

// Descriptor describes a kind of things.
func (m *Machine) Descriptor(kind, lane string) kvscheduler.Descriptor[Thing, int] {
	return kvscheduler.Descriptor[Thing, int]{
		Name: kind, Lane: lane,
		Equal:    func(want, have Thing) bool { return want.Read() == have.Read() },
		Recreate: func(have, want Thing) bool { return have.Type != want.Type },
		Validate: func(_ string, v Thing) error {
			if v.Bad {
				return errors.New("bad on purpose")
			}
			return nil
		},
		Deps:   func(_ string, v Thing) []kvscheduler.Dep { return v.deps() },
		Bucket: func(_ string, v Thing) string { return v.In() },
		Hash:   Thing.hash,
		Merge: func(dumped, last Thing) Thing {
			dumped.Secret = last.Secret
			return dumped
		},
		Redact: func(v Thing) Thing {
			if v.Secret != "" {
				v.Secret = "(secret)"
			}
			return v
		},
		Backend: &Backend{m: m, kind: kvscheduler.Kind(kind)},
	}
}

// FullDump hides Read, so that the scheduler has to dump the kind to read something back.
type FullDump struct {
	kvscheduler.Backend[Thing, int]
}

func (v Thing) hash() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", v.Read())
	return h.Sum64()
}

func (v Thing) deps() (deps []kvscheduler.Dep) {
	add := func(refs string, mode kvscheduler.DepMode) {
		for _, key := range strings.Fields(refs) {
			ref, _ := kvscheduler.ParseRef(key)
			deps = append(deps, kvscheduler.Dep{On: ref, Mode: mode})
		}
	}
	add(v.Needs, kvscheduler.Exists)
	add(v.Behind, kvscheduler.Exists)
	add(v.Follows, kvscheduler.Follow)
	add(v.PartOf, kvscheduler.Part)
	if v.Near != "" {
		deps = append(deps, kvscheduler.Dep{Any: &kvscheduler.Select{
			Kind: kvscheduler.Kind(v.Near[:1]), Bucket: v.Near,
			Match: func(_ string, v any) bool { return v.(Thing).Version%2 == 0 },
		}})
	}
	if v.BehindAny != "" {
		deps = append(deps, kvscheduler.Dep{
			Any: &kvscheduler.Select{Kind: kvscheduler.Kind(v.BehindAny[:1]), Bucket: v.BehindAny},
		})
	}
	return deps
}

// Create implements kvscheduler.Backend.
func (b *Backend) Create(ctx context.Context, batch []item) { b.call(ctx, kvscheduler.Create, batch) }

// Update implements kvscheduler.Backend.
func (b *Backend) Update(ctx context.Context, batch []item) { b.call(ctx, kvscheduler.Update, batch) }

// Delete implements kvscheduler.Backend.
func (b *Backend) Delete(ctx context.Context, batch []item) { b.call(ctx, kvscheduler.Delete, batch) }

func (b *Backend) call(_ context.Context, verb kvscheduler.Verb, batch []item) {
	b.wait()
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	c := Call{Kind: b.kind, Verb: verb}
	for i := range batch {
		c.Names = append(c.Names, batch[i].Name)
		b.doLocked(verb, &batch[i])
	}
	b.m.calls = append(b.m.calls, c)
}

func (b *Backend) wait() {
	b.m.mu.Lock()
	held := b.m.hold[b.kind]
	b.m.mu.Unlock()
	if held != nil {
		b.m.entered <- b.kind
		<-held
	}
}

func (b *Backend) doLocked(verb kvscheduler.Verb, it *item) {
	ref := kvscheduler.Ref{Kind: b.kind, Name: it.Name}
	b.expectLocked(verb, ref, it)
	if _, there := b.m.live[ref]; !there && verb == kvscheduler.Update { // the machine was restarted meanwhile
		it.Err = errors.New("it is not there")
		return
	}
	fault := Fine
	if b.m.fault != nil {
		fault = b.m.fault(verb, ref)
	}
	if fault == Fine || fault == LoseReply {
		b.applyLocked(verb, ref, it)
		b.m.checkLocked(verb.String() + " " + ref.String())
	}
	switch fault {
	case Refuse:
		it.Err = kvscheduler.Refused(errors.New("refused on purpose"))
	case LoseReply, LoseCall:
		it.Err = errors.New("no reply, on purpose")
	}
}

func (b *Backend) expectLocked(verb kvscheduler.Verb, ref kvscheduler.Ref, it *item) {
	s, there := b.m.live[ref]
	have := it.Have
	if b.m.blind && have.Secret == "" {
		have.Secret = s.v.Secret
	}
	switch {
	case s.foreign:
		b.m.blameLocked("%s of foreign %s", verb, ref)
	case verb == kvscheduler.Create && there:
		b.m.blameLocked("create of %s, which is there", ref)
	case verb != kvscheduler.Create && !there && !b.m.isLostLocked(ref):
		b.m.blameLocked("%s of %s, which is not there", verb, ref)
	case verb != kvscheduler.Create && there && (have.Read() != s.v.Read() || it.Meta != s.handle):
		b.m.blameLocked("%s of %s with have %+v (%d), but there is %+v (%d)", verb, ref, it.Have, it.Meta, s.v,
			s.handle)
	}
	if verb == kvscheduler.Delete {
		return
	}
	for i, d := range it.Want.deps() {
		if d.Any != nil {
			continue
		}
		if on, there := b.m.live[d.On]; there && !on.foreign && it.Handles[i] != any(on.handle) {
			b.m.blameLocked("%s of %s: handle of %s is %v, not %d", verb, ref, d.On, it.Handles[i], on.handle)
		}
	}
}

func (b *Backend) applyLocked(verb kvscheduler.Verb, ref kvscheduler.Ref, it *item) {
	delete(b.m.lost, ref)
	switch verb {
	case kvscheduler.Create:
		b.m.handles++
		it.NewMeta = b.m.handles
		b.m.live[ref] = stored{v: it.Want, handle: b.m.handles}
	case kvscheduler.Update:
		b.m.live[ref] = stored{v: it.Want, handle: b.m.live[ref].handle}
	case kvscheduler.Delete:
		delete(b.m.live, ref)
	}
}

// Dump implements kvscheduler.Backend. Secrets cannot be read back, but the hash of the whole value can.
func (b *Backend) Dump(context.Context, kvscheduler.View) iter.Seq2[actual, error] {
	b.wait()
	return b.list(func(string) bool { return true })
}

// Read implements kvscheduler.Reader.
func (b *Backend) Read(_ context.Context, _ kvscheduler.View, names []string) iter.Seq2[actual, error] {
	return b.list(func(name string) bool { return slices.Contains(names, name) })
}

func (b *Backend) list(want func(name string) bool) iter.Seq2[actual, error] {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	var out []actual
	for r, s := range b.m.live {
		if r.Kind != b.kind || !want(r.Name) {
			continue
		}
		a := actual{Name: r.Name, V: s.v, Meta: s.handle, Hash: s.v.hash(), HasHash: true}
		a.V = a.V.Read()
		a.V.Secret = ""
		if s.foreign {
			a.Owner = kvscheduler.Foreign
		}
		out = append(out, a)
	}
	b.m.reads += len(out)
	return func(yield func(actual, error) bool) {
		for _, a := range out {
			if !yield(a, nil) {
				return
			}
		}
	}
}
