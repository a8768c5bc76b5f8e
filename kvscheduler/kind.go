package kvscheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// kind is a descriptor with its types erased. The function erase makes its functions.
type kind struct {
	name     Kind
	lane     string
	after    []Kind
	backed   bool // has a backend; else a marker
	hashes   bool
	typeName string

	is       func(v any) bool
	equal    func(want, have any) bool
	recreate func(have, want any) bool
	disturbs func(have, want any) bool
	validate func(name string, v any) error
	deps     func(name string, v any) []Dep
	bucket   func(name string, v any) string
	hash     func(v any) uint64
	merge    func(dumped, last any) any
	redact   func(v any) any
	encode   func(v any) ([]byte, error)
	decode   func(b []byte) (any, error)

	call func(ctx context.Context, verb Verb, items []opItem) []opResult
	dump func(ctx context.Context, view View) (found, error)
	read func(ctx context.Context, view View, names []string) (found, error) // nil: no Reader
}

// Equal implements plan.Rules.
func (k *kind) Equal(want, have any) bool { return k.equal(want, have) }

// Recreate implements plan.Rules.
func (k *kind) Recreate(have, want any) bool { return k.recreate(have, want) }

// Disturbs implements plan.Rules.
func (k *kind) Disturbs(have, want any) bool { return k.disturbs(have, want) }

// Deps implements plan.Rules.
func (k *kind) Deps(name string, v any) []Dep { return k.deps(name, v) }

// Bucket implements plan.Rules.
func (k *kind) Bucket(name string, v any) (string, bool) {
	if k.bucket == nil {
		return "", false
	}
	return k.bucket(name, v), true
}

// opItem is an Item on its way to a backend, opResult what came back.
type opItem struct {
	name             string
	want, have, meta any
	handles          []any
	attempt          int
}

type opResult struct {
	meta any
	err  error
}

// found is the result of a dump or a read: Actuals of one kind, still in their own type, so that a comparison without
// drift does not allocate.
type found interface {
	len() int
	head(i int) head
	box(i int) (value, meta any)
	// same tells whether entry i equals the applied value.
	same(i int, have, meta any) bool
}

type head struct {
	name    string
	owner   Owner
	hash    uint64
	hasHash bool
}

// Register adds a kind; it must come before Run.
func Register[V, M any](s *Scheduler, d Descriptor[V, M]) error {
	if _, err := ParseRef(d.Name + "/x"); err != nil || len(d.Name) == 0 {
		return fmt.Errorf("register kind %q: a kind is not empty", d.Name)
	}
	for _, c := range d.Name {
		if c == '/' {
			return fmt.Errorf("register kind %q: a kind holds no slash", d.Name)
		}
	}
	if d.Equal == nil {
		return fmt.Errorf("register kind %s: Equal is required", d.Name)
	}
	k := erase(d)
	k.typeName = reflect.TypeFor[V]().String()
	return s.add(k)
}

// erase turns the typed functions of a descriptor into functions over any. No other function converts between the two.
func erase[V, M any](d Descriptor[V, M]) *kind {
	k := &kind{
		name: Kind(d.Name), lane: d.Lane,
		backed: d.Backend != nil, hashes: d.Hash != nil,
		is:    func(v any) bool { _, ok := v.(V); return ok },
		equal: func(want, have any) bool { return d.Equal(want.(V), have.(V)) },
	}
	for _, a := range d.After {
		k.after = append(k.after, Kind(a))
	}
	eraseRules(k, d)
	eraseForms(k, d)
	if d.Backend != nil {
		eraseBackend(k, d)
	}
	return k
}

func eraseRules[V, M any](k *kind, d Descriptor[V, M]) {
	k.recreate = func(have, want any) bool { return d.Recreate != nil && d.Recreate(have.(V), want.(V)) }
	k.disturbs = func(have, want any) bool { return d.Disturbs == nil || d.Disturbs(have.(V), want.(V)) }
	k.validate = func(name string, v any) error {
		if d.Validate == nil {
			return nil
		}
		return d.Validate(name, v.(V))
	}
	k.deps = func(name string, v any) []Dep {
		if d.Deps == nil {
			return nil
		}
		return d.Deps(name, v.(V))
	}
	if d.Bucket != nil {
		k.bucket = func(name string, v any) string { return d.Bucket(name, v.(V)) }
	}
}

func eraseForms[V, M any](k *kind, d Descriptor[V, M]) {
	k.hash = func(v any) uint64 { return d.Hash(v.(V)) }
	k.merge = func(dumped, last any) any {
		if d.Merge == nil {
			return dumped
		}
		return d.Merge(dumped.(V), last.(V))
	}
	k.redact = func(v any) any {
		if v == nil || d.Redact == nil {
			return v
		}
		return d.Redact(v.(V))
	}
	k.encode = func(v any) ([]byte, error) {
		if d.Encode != nil {
			return d.Encode(v.(V))
		}
		return json.Marshal(v)
	}
	k.decode = func(b []byte) (any, error) {
		if d.Decode != nil {
			return d.Decode(b)
		}
		var v V
		err := json.Unmarshal(b, &v)
		return v, err
	}
}

func eraseBackend[V, M any](k *kind, d Descriptor[V, M]) {
	k.call = func(ctx context.Context, verb Verb, items []opItem) []opResult {
		return callBatch(ctx, d.Backend, verb, items)
	}
	comparable := reflect.TypeFor[M]().Comparable() && reflect.TypeFor[M]().Kind() != reflect.Interface
	gather := func(seq func(func(Actual[V, M], error) bool)) (found, error) {
		f := &actuals[V, M]{d: &d, metaComparable: comparable}
		for a, err := range seq {
			if err != nil {
				return nil, err
			}
			f.list = append(f.list, a)
		}
		return f, nil
	}
	k.dump = func(ctx context.Context, view View) (found, error) { return gather(d.Backend.Dump(ctx, view)) }
	if r, ok := d.Backend.(Reader[V, M]); ok {
		k.read = func(ctx context.Context, view View, names []string) (found, error) {
			return gather(r.Read(ctx, view, names))
		}
	}
}

// callBatch makes one backend call. After a panic in it the outcome of each item is unknown.
func callBatch[V, M any](ctx context.Context, b Backend[V, M], verb Verb, items []opItem) (out []opResult) {
	defer func() {
		if p := recover(); p != nil {
			out = make([]opResult, len(items))
			for i := range out {
				out[i].err = fmt.Errorf("panic in backend: %v", p)
			}
		}
	}()
	batch := make([]Item[V, M], len(items))
	for i, it := range items {
		batch[i] = Item[V, M]{Name: it.name, Handles: it.handles, Attempt: it.attempt}
		batch[i].Want, _ = it.want.(V)
		batch[i].Have, _ = it.have.(V)
		batch[i].Meta, _ = it.meta.(M)
		batch[i].NewMeta = batch[i].Meta
	}
	switch verb {
	case Create:
		b.Create(ctx, batch)
	case Update:
		b.Update(ctx, batch)
	case Delete:
		b.Delete(ctx, batch)
	}
	out = make([]opResult, len(items))
	for i := range batch {
		if out[i].err = batch[i].Err; out[i].err == nil && verb != Delete {
			out[i].meta = batch[i].NewMeta
		}
	}
	return out
}

// actuals implements found.
type actuals[V, M any] struct {
	d              *Descriptor[V, M]
	metaComparable bool
	list           []Actual[V, M]
}

func (f *actuals[V, M]) len() int { return len(f.list) }

func (f *actuals[V, M]) head(i int) head {
	a := &f.list[i]
	return head{name: a.Name, owner: a.Owner, hash: a.Hash, hasHash: a.HasHash}
}

func (f *actuals[V, M]) box(i int) (value, meta any) { return f.list[i].V, f.list[i].Meta }

func (f *actuals[V, M]) same(i int, have, meta any) bool {
	a := &f.list[i]
	last, ok := have.(V)
	if !ok || !f.metaComparable {
		return false
	}
	if m, ok := meta.(M); !ok || any(m) != any(a.Meta) {
		return false
	}
	if a.HasHash && f.d.Hash != nil && a.Hash != f.d.Hash(last) {
		return false
	}
	v := a.V
	if f.d.Merge != nil {
		v = f.d.Merge(v, last)
	}
	return f.d.Equal(last, v)
}
