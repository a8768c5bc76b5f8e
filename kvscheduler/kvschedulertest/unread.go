package kvschedulertest

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/weftnet/weft/kvscheduler"
)

// FollowsUnread changes each field of a value of a kind. If Equal ignores the change, but the object depends on
// something else than before, it checks that a scheduler follows: with the new value the object exists if, and only if,
// the new dependencies do. It returns the names of these fields.
func FollowsUnread[V, M any](t *testing.T, d kvscheduler.Descriptor[V, M], name string, v V) (fields []string) {
	t.Helper()
	d.Backend = idle[V, M]{}
	d.After = nil
	d.Validate = nil
	for field, changed := range variants(v) {
		if !d.Equal(changed, v) || slices.Equal(exact(d, name, v), exact(d, name, changed)) {
			continue
		}
		fields = append(fields, field)
		t.Run(d.Name+" "+field, func(t *testing.T) {
			follows(t, d, name, [2]V{v, changed})
			follows(t, d, name, [2]V{changed, v})
		})
	}
	return fields
}

// exact lists the objects that a value depends on.
func exact[V, M any](d kvscheduler.Descriptor[V, M], name string, v V) (refs []kvscheduler.Ref) {
	if d.Deps == nil {
		return nil
	}
	for _, dep := range d.Deps(name, v) {
		if dep.Any == nil {
			refs = append(refs, dep.On)
		}
	}
	return refs
}

// follows changes an object from the first value to the second.
func follows[V, M any](t *testing.T, d kvscheduler.Descriptor[V, M], name string, values [2]V) {
	t.Helper()
	before := values[0]
	after := values[1]
	s := kvscheduler.New(kvscheduler.Config{})
	object, err := Register(s, d)
	fail(t, err)
	old := exact(d, name, before)
	now := exact(d, name, after)
	markers := make(map[kvscheduler.Ref]kvscheduler.Object)
	for _, r := range slices.Concat(old, now) {
		marker, err := Register(s, kvscheduler.Descriptor[string, struct{}]{
			Name:  string(r.Kind),
			Equal: func(a, b string) bool { return a == b },
		})
		if err != nil { // registered already
			marker = KindOf[string](r.Kind)
		}
		markers[r] = marker.Put(r.Name, "there")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer func() { cancel(); running.Wait() }()
	commit := func(set ...kvscheduler.Object) {
		t.Helper()
		_, err := s.Commit(ctx, kvscheduler.Txn{Source: "test", Set: set})
		fail(t, err)
	}
	is := func(want kvscheduler.Phase, when string) {
		t.Helper()
		if st, _ := s.View().Status(object.Ref(name)); st.Phase != want {
			t.Errorf("%s: %v, waiting for %q, want %v", when, st.Phase, st.Missing, want)
		}
	}
	for _, m := range markers {
		commit(m)
	}
	commit(object.Put(name, before))
	is(kvscheduler.InSync, "before the change")
	commit(object.Put(name, after))
	is(kvscheduler.InSync, "after the change")
	for r, m := range markers {
		commit(KindOf[string](r.Kind).Del(r.Name))
		want := kvscheduler.InSync
		if slices.Contains(now, r) {
			want = kvscheduler.Pending
		}
		is(want, fmt.Sprintf("without %s", r))
		commit(m)
		is(kvscheduler.InSync, fmt.Sprintf("with %s again", r))
	}
}

func fail(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// variants yields copies of a value in which one exported field differs, with the name of the field.
func variants[V any](v V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if reflect.TypeOf(v).Kind() != reflect.Struct {
			return
		}
		for n := range reflect.TypeOf(v).NumField() {
			changed := v
			field := reflect.ValueOf(&changed).Elem().Field(n)
			if vary(field) && !yield(reflect.TypeOf(v).Field(n).Name, changed) {
				return
			}
		}
	}
}

// vary changes a field, and reports whether it can.
func vary(field reflect.Value) bool {
	switch {
	case !field.CanSet():
		return false
	case field.Kind() == reflect.Bool:
		field.SetBool(!field.Bool())
	case field.Kind() == reflect.String:
		field.SetString(field.String() + "x")
	case field.CanInt():
		field.SetInt(field.Int() + 1)
	case field.CanUint():
		field.SetUint(field.Uint() + 1)
	default:
		return false
	}
	return true
}

// idle is a backend without effect.
type idle[V, M any] struct{}

// Create implements kvscheduler.Backend.
func (idle[V, M]) Create(context.Context, []kvscheduler.Item[V, M]) {}

// Update implements kvscheduler.Backend.
func (idle[V, M]) Update(context.Context, []kvscheduler.Item[V, M]) {}

// Delete implements kvscheduler.Backend.
func (idle[V, M]) Delete(context.Context, []kvscheduler.Item[V, M]) {}

// Dump implements kvscheduler.Backend.
func (idle[V, M]) Dump(context.Context, kvscheduler.View) iter.Seq2[kvscheduler.Actual[V, M], error] {
	return func(func(kvscheduler.Actual[V, M], error) bool) {}
}
