package kvscheduler_test

import (
	"context"
	"iter"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestVerifyNamesEachDifferenceWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		w := start(t, m, nil)
		defer w.end()
		w.put(put("a/changed", thing{Secret: "s"}), put("a/retyped", thing{}), put("a/missing", thing{}),
			put("a/fine", thing{Secret: "s"}), put("a/secret", thing{Secret: "s"}),
			put("c/foreign", thing{}), kvschedulertest.KindOf[string]("seen").Put("x", "1"))
		m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
		if _, err := w.commit(kvscheduler.BestEffort, put("a/changed", thing{Version: 1, Secret: "s"}),
			put("a/retyped", thing{Type: 1})); err == nil {
			t.Error("the changes are not refused")
		}
		m.Tamper(key("a/missing"), nil)
		m.Tamper(key("a/secret"), &thing{Secret: "other"})
		m.Foreign(key("c/foreign"), thing{})
		m.Foreign(key("c/theirs"), thing{})
		m.Tamper(key("b/extra"), &thing{})

		diffs, err := w.s.Verify(context.Background())
		must(t, err)
		want := map[string]string{
			"a/changed": "value differs", "a/retyped": "value differs, needs to be recreated", "a/missing": "missing",
			"a/secret": "stored hash differs",
			"b/extra":  "there, but not desired", "c/foreign": "held by an object that is not ours",
		}
		for _, d := range diffs {
			if got := d.Ref.String(); want[got] != d.Reason {
				t.Errorf("%s: %q, want %q", got, d.Reason, want[got])
			}
			if v, is := d.Have.(thing); is && v.Secret != "" && v.Secret != "(secret)" {
				t.Errorf("%s shows the secret %q", d.Ref, v.Secret)
			}
			delete(want, d.Ref.String())
		}
		if len(want) > 0 {
			t.Errorf("not named: %v", want)
		}
	})
}

func TestVerifyOfNamedObjectsReportsOnlyThese(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		w := start(t, m, nil)
		defer w.end()
		w.put(put("a/1", thing{}), put("a/2", thing{}), put("c/1", thing{}))
		for _, object := range []string{"a/1", "a/2", "c/1"} {
			m.Tamper(key(object), nil)
		}
		m.Foreign(key("a/theirs"), thing{})
		m.Tamper(key("a/extra"), &thing{})
		diffs, err := w.s.Verify(context.Background(), key("a/2"), key("a/theirs"), key("a/extra"), key("a/never"))
		must(t, err)
		var got []string
		for _, d := range diffs {
			got = append(got, d.Ref.String()+" "+d.Reason)
		}
		if want := []string{"a/2 missing", "a/extra there, but not desired"}; !slices.Equal(got, want) {
			t.Errorf("differences %q, want %q", got, want)
		}
		if _, err := w.s.Verify(context.Background(), key("z/1")); err == nil {
			t.Error("an unknown kind is accepted")
		}
	})
}

// An object that changes between the look at the view and the end of the read was in neither state: it is neither a
// difference nor in order.
func TestVerifyReadsObjectsAgainThatChangeMeanwhile(t *testing.T) {
	named := []ref{key("x/1"), key("x/2"), key("x/3")}
	for name, tt := range map[string]struct {
		refs    []ref
		found   int // of x/2
		changes int // the desired value is set to 3, 4 ... during so many reads
		reason  string
	}{
		"without a change":             {named, 2, 0, ""},
		"different without a change":   {named, 5, 0, "value differs"},
		"changed to what is there":     {named, 3, 1, ""},
		"changed and different":        {named, 5, 1, "value differs"},
		"changed twice":                {named, 4, 2, ""},
		"changed twice and different":  {named, 5, 2, "value differs"},
		"changed each time":            {named, 5, 3, "changes whenever it is read"},
		"changed each time, as wanted": {named, 4, 100, "changes whenever it is read"},
		"one of all":                   {nil, 3, 1, ""},
		"one of all, and different":    {nil, 5, 1, "value differs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *kvscheduler.Scheduler
				changes := 0
				looks := func(kvscheduler.View, []string) {
					if s != nil && changes < tt.changes {
						changes++
						must2(s.Commit(t.Context(), kvscheduler.Txn{
							Source: "test",
							Set:    []kvscheduler.Object{intAt("x/2", 2+changes)},
						}))(t)
					}
				}
				known, _ := withListed(t,
					map[string]listed{"x": {objects: map[string]int{"1": 1, "2": tt.found, "3": 9}, looks: looks}}, nil)
				must2(known.Commit(t.Context(), kvscheduler.Txn{
					Source: "test",
					Set:    []kvscheduler.Object{intAt("x/1", 1), intAt("x/2", 2), intAt("x/3", 3)},
				}))(t)
				s = known
				differences, err := s.Verify(t.Context(), tt.refs...)
				must(t, err)
				var reasons []string
				for _, d := range differences {
					reasons = append(reasons, d.Ref.String()+" "+d.Reason)
				}
				want := []string{"x/3 value differs"}
				if tt.reason != "" {
					want = []string{"x/2 " + tt.reason, "x/3 value differs"}
				}
				if !slices.Equal(reasons, want) {
					t.Errorf("differences %q, want %q", reasons, want)
				}
			})
		})
	}
}

// hashed is a backend whose only object has the value, handle and hash that the test sets.
type hashed struct {
	v, meta int
	hash    uint64
	updates *int
}

func (b *hashed) Create(_ context.Context, batch []intItem) { batch[0].NewMeta = b.meta }
func (b *hashed) Update(_ context.Context, batch []intItem) { *b.updates += len(batch) }
func (b *hashed) Delete(context.Context, []intItem)         {}
func (b *hashed) Dump(context.Context, kvscheduler.View) iter.Seq2[kvscheduler.Actual[int, int], error] {
	return func(yield func(kvscheduler.Actual[int, int], error) bool) {
		yield(kvscheduler.Actual[int, int]{Name: "1", V: b.v, Meta: b.meta, Hash: b.hash, HasHash: true}, nil)
	}
}

// The value of the object has two digits, and only the second one can be dumped.
func TestAResyncComparesValueHandleAndHash(t *testing.T) {
	for name, tt := range map[string]struct {
		dumped  hashed
		updates int
		meta    int
	}{
		"as applied":       {hashed{v: 7, meta: 1, hash: 47}, 0, 1},
		"another value":    {hashed{v: 8, meta: 1, hash: 48}, 1, 1},
		"a hidden change":  {hashed{v: 7, meta: 1, hash: 57}, 1, 1},
		"another handle":   {hashed{v: 7, meta: 2, hash: 47}, 0, 2},
		"changed and back": {hashed{v: 8, meta: 1, hash: 47}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &hashed{v: 7, meta: 1, hash: 47}
				updates := 0
				s := kvscheduler.New(kvscheduler.Config{})
				k, err := kvschedulertest.Register(s, kvscheduler.Descriptor[int, int]{
					Name:  "x",
					Equal: func(a, b int) bool { return a == b },
					Hash:  func(v int) uint64 { return uint64(v) },
					Merge: func(dumped, last int) int { return last/10*10 + dumped }, Backend: b,
				})
				must(t, err)
				runScheduler(t, s)
				must2(s.Commit(t.Context(), kvscheduler.Txn{Set: []kvscheduler.Object{k.Put("1", 47)}}))(t)
				*b = tt.dumped
				b.updates = &updates
				must2(s.Resync(t.Context(), kvscheduler.ResyncOpt{}))(t)
				if updates != tt.updates {
					t.Errorf("%d updates, want %d", updates, tt.updates)
				}
				if _, meta, _ := s.View().Applied(k.Ref("1")); meta != tt.meta {
					t.Errorf("the handle is %v, want %d", meta, tt.meta)
				}
			})
		})
	}
}
