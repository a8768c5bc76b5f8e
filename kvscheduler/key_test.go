package kvscheduler_test

import (
	"errors"
	"strings"
	"testing"

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
			if err == nil && (o.Ref.String() != tc.key || o.Value() != tc.value) {
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
	must2(kvscheduler.Register(s, kvscheduler.Descriptor[int, int]{Name: "x", Equal: equal}))(t)
	for name, d := range map[string]kvscheduler.Descriptor[int, int]{
		"no name":  {Equal: equal},
		"a slash":  {Name: "x/y", Equal: equal},
		"no Equal": {Name: "y"},
		"twice":    {Name: "x", Equal: equal},
	} {
		if _, err := kvscheduler.Register(s, d); err == nil {
			t.Errorf("%s: registered", name)
		}
	}
}
