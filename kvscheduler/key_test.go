package kvscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{"a/b", "vpp.interface/pod/eth0", "", "/", "a/", "/a", "a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		r, err := kvscheduler.ParseRef(key)
		if err != nil {
			if i := strings.IndexByte(key, '/'); i > 0 && i < len(key)-1 {
				t.Errorf("refused %q: %v", key, err)
			}
			return
		}
		if r.String() != key || r.Kind == "" || r.Name == "" || strings.Contains(string(r.Kind), "/") {
			t.Errorf("%q became %+v", key, r)
		}
	})
}

func TestObjectChecksKeyKindAndType(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	for name, tc := range map[string]struct {
		key   string
		value any
		err   string
	}{
		"a value":        {"a/x/y", thing{}, ""},
		"a deletion":     {"a/x", nil, ""},
		"no name":        {"a", nil, "not of the form kind/name"},
		"unknown kind":   {"z/1", nil, "unknown kind of z/1"},
		"another type":   {"a/1", "text", "the value is a string, the kind a takes kvschedulertest.Thing"},
		"a pointer":      {"a/1", &thing{}, "the value is a *kvschedulertest.Thing"},
		"observed value": {"seen/1", "text", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := w.s.Object(tc.key, tc.value)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			if err == nil && (o.Ref.String() != tc.key || o.Value != tc.value) {
				t.Errorf("got %+v", o)
			}
		})
	}
}

func TestValuesSurviveTheirStoredForm(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	want := thing{Version: 3, Needs: "b/1", Secret: "kept"}
	b, err := w.s.Encode("a/1", want)
	must(t, err)
	got, err := w.s.Decode("a/1", b)
	must(t, err)
	if got != want {
		t.Errorf("got %+v", got)
	}
	if _, err := w.s.Decode("a/1", []byte("{")); err == nil {
		t.Error("half a value was decoded")
	}
	if err := w.s.Validate("a/1", thing{Bad: true}); !errors.Is(err, kvscheduler.ErrInvalid) {
		t.Errorf("validate: %v", err)
	}
	must(t, w.s.Validate("a/1", want))
}

func TestRegisterRefusesWhatCannotWork(t *testing.T) {
	equal := func(a, b int) bool { return a == b }
	s := kvscheduler.New(kvscheduler.Config{})
	must2(kvschedulertest.Register(s, kvscheduler.Descriptor[int, int]{Name: "x", Equal: equal}))(t)
	for name, d := range map[string]kvscheduler.Descriptor[int, int]{
		"no name":  {Equal: equal},
		"a slash":  {Name: "x/y", Equal: equal},
		"no Equal": {Name: "y"},
		"twice":    {Name: "x", Equal: equal},
	} {
		if err := kvscheduler.Register(s, d); err == nil {
			t.Errorf("%s: registered", name)
		}
	}
}

func TestADescriptorMayHaveItsOwnStoredForm(t *testing.T) {
	s := kvscheduler.New(kvscheduler.Config{})
	must2(kvschedulertest.Register(s, kvscheduler.Descriptor[int, int]{
		Name: "x", Equal: func(a, b int) bool { return a == b },
		Encode: func(v int) ([]byte, error) {
			if v < 0 {
				return nil, errors.New("negative")
			}
			return fmt.Appendf(nil, "0x%x", v), nil
		},
		Decode: func(b []byte) (v int, err error) { _, err = fmt.Sscanf(string(b), "0x%x", &v); return v, err },
	}))(t)
	if b, err := s.Encode("x/1", 255); err != nil || string(b) != "0xff" {
		t.Errorf("encoded %q, %v", b, err)
	}
	if v, err := s.Decode("x/1", []byte("0xff")); err != nil || v != 255 {
		t.Errorf("decoded %v, %v", v, err)
	}
	for name, err := range map[string]error{
		"encode x/1: negative": second(s.Encode("x/1", -1)), "the value is a string": second(s.Encode("x/1", "one")),
		"unknown kind of y/1": second(s.Encode("y/1", 1)),
		"decode x/1":          second(s.Decode("x/1", []byte("ten"))), "not of the form": second(s.Decode("x", nil)),
		"the value is a bool": s.Validate("x/1", true),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

func second[V any](_ V, err error) error { return err }

func TestRegisterFailsWhileTheSchedulerRuns(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/1", thing{})) // it runs
	if err := kvscheduler.Register(w.s, w.m.Descriptor("late", "")); err == nil ||
		!strings.Contains(err.Error(), "runs already") {
		t.Errorf("register: %v", err)
	}
}

// pathHandles is a backend whose handles cannot be compared.
type pathHandles struct{ updates *int }

func (b pathHandles) Create(_ context.Context, batch []kvscheduler.Item[int, any]) {
	batch[0].NewMeta = []string{"path"}
}
func (b pathHandles) Update(context.Context, []kvscheduler.Item[int, any]) { *b.updates++ }
func (b pathHandles) Delete(context.Context, []kvscheduler.Item[int, any]) {}
func (b pathHandles) Dump(context.Context, kvscheduler.View) iter.Seq2[kvscheduler.Actual[int, any], error] {
	return func(yield func(kvscheduler.Actual[int, any], error) bool) {
		yield(kvscheduler.Actual[int, any]{Name: "1", V: 1, Meta: []string{"path"}}, nil)
	}
}

func TestHandlesThatCannotBeComparedAreAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kvscheduler.New(kvscheduler.Config{})
		updates := 0
		k, err := kvschedulertest.Register(s, kvscheduler.Descriptor[int, any]{
			Name:    "x",
			Equal:   func(a, b int) bool { return a == b },
			Backend: pathHandles{&updates},
		})
		must(t, err)
		runScheduler(t, s)
		must2(s.Commit(t.Context(), kvscheduler.Txn{Set: []kvscheduler.Object{k.Put("1", 1)}}))(t)
		must2(s.Resync(t.Context(), kvscheduler.ResyncOpt{}))(t)
		if st, _ := s.View().Status(k.Ref("1")); st.Phase != kvscheduler.InSync || updates > 0 {
			t.Errorf("status %+v after %d updates", st, updates)
		}
	})
}
