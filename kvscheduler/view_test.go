package kvscheduler_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestAViewHasTheValuesOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/1", thing{Type: 1}), put("a/2", thing{Needs: "c/none"}))
		before := w.s.View()
		w.put(put("a/1", thing{Type: 2}), put("a/3", thing{}), del("a/2"))
		after := w.s.View()

		if v, ok := applied(before, "a/1"); !ok || v.Type != 1 {
			t.Errorf("the earlier view has %v, %t", v, ok)
		}
		if v, ok := applied(after, "a/1"); !ok || v.Type != 2 {
			t.Errorf("the later view has %v, %t", v, ok)
		}
		if _, ok := applied(before, "a/2"); ok {
			t.Error("an object that waits is applied")
		}
		if v, ok := before.Desired(key("a/2")); !ok || v.(thing).Needs != "c/none" {
			t.Errorf("desired: %v, %t", v, ok)
		}
		if st, ok := before.Status(key("a/2")); !ok || st.Phase != kvscheduler.Pending ||
			!slices.Equal(st.Missing, []string{"c/none"}) {
			t.Errorf("status %+v, %t", st, ok)
		}
		for _, gone := range []string{"a/2", "z/1"} {
			_, desired := after.Desired(key(gone))
			if _, known := after.Status(key(gone)); known || desired {
				t.Errorf("%s is known %t, desired %t", gone, known, desired)
			}
		}
		names := func(v kvscheduler.View) (names []string) {
			for name := range v.All("a") {
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		if was, is := names(before), names(after); !slices.Equal(was, []string{"1", "2"}) ||
			!slices.Equal(is, []string{"1", "3"}) || before.Rev() >= after.Rev() {
			t.Errorf("objects %v of %d, then %v of %d", was, before.Rev(), is, after.Rev())
		}
	})
}

func TestSecretsAreRedactedForOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		if got := w.s.Redacted(key("a/1"), thing{Secret: "s3cret"}).(thing).Secret; got != "(secret)" {
			t.Errorf("the secret is shown as %q", got)
		}
		if got := w.s.Redacted(key("z/1"), "x"); got != "x" {
			t.Errorf("a value of an unknown kind becomes %v", got)
		}
		if got := w.s.Redacted(key("a/1"), nil); got != nil {
			t.Errorf("no value becomes %v", got)
		}
	})
}

func TestAfterTheEndRequestsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		w.put(put("a/1", thing{}))
		w.end()
		if _, err := w.commit(kvscheduler.Atomic, put("a/2", thing{})); !errors.Is(err, kvscheduler.ErrStopped) {
			t.Errorf("commit: %v", err)
		}
		if _, err := w.s.Resync(context.Background(), kvscheduler.ResyncOpt{}); !errors.Is(err,
			kvscheduler.ErrStopped) {
			t.Errorf("resync: %v", err)
		}
		if err := w.s.Run(context.Background()); err == nil {
			t.Error("Run can be called twice")
		}
		if st, ok := w.s.View().Status(key("a/1")); !ok || st.Phase != kvscheduler.InSync {
			t.Errorf("the last view has %+v, %t", st, ok)
		}
	})
}

func TestACommitWhoseCallerIsGoneIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		rec, err := w.s.Commit(ctx, kvscheduler.Txn{
			Source: "test",
			Label:  "late",
			Set:    []kvscheduler.Object{put("a/1", thing{})},
		})
		if rec != nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "late") {
			t.Errorf("%v, %v", rec, err)
		}
		if _, known := w.s.View().Status(key("a/1")); known {
			t.Error("the value is desired")
		}
	})
}

func TestKindsThatCannotBeServedAreNotRegistered(t *testing.T) {
	equal := func(a, b string) bool { return a == b }
	for word, d := range map[string]kvscheduler.Descriptor[string, int]{
		"not empty":  {Equal: equal},
		"slash":      {Name: "a/b", Equal: equal},
		"Equal":      {Name: "a"},
		"registered": {Name: "twice", Equal: equal},
	} {
		s := kvscheduler.New(kvscheduler.Config{})
		if err := kvscheduler.Register(s, kvscheduler.Descriptor[string, int]{
			Name:  "twice",
			Equal: equal,
		}); err != nil {
			t.Fatal(err)
		}
		if err := kvscheduler.Register(s, d); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", word, err)
		}
	}
}

func TestKindsThatAreDumpedAfterEachOtherAreRefused(t *testing.T) {
	s := kvscheduler.New(kvscheduler.Config{})
	m := kvschedulertest.New()
	for kind, after := range map[string]string{"a": "b", "b": "c", "c": "a"} {
		d := m.Descriptor(kind, "")
		d.After = []string{after}
		if err := kvscheduler.Register(s, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Run(t.Context()); !errors.Is(err, kvscheduler.ErrCycle) {
		t.Errorf("run: %v", err)
	}
}

func TestTransactionsWithUnknownKindsOrTwoValuesOfAnObjectChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		for name, tt := range map[string]struct {
			set []kvscheduler.Object
			err error
		}{
			"an unknown kind": {
				[]kvscheduler.Object{put("a/1", thing{}), put("z/1", thing{})}, kvscheduler.ErrUnknownKind,
			},
			"two values": {
				[]kvscheduler.Object{put("a/1", thing{}), put("a/1", thing{Type: 1})}, kvscheduler.ErrConflict,
			},
			"a cycle": {
				[]kvscheduler.Object{put("a/1", thing{Needs: "c/1"}), put("c/1", thing{Needs: "a/1"})},
				kvscheduler.ErrCycle,
			},
		} {
			rec, err := w.commit(kvscheduler.BestEffort, tt.set...)
			if !errors.Is(err, tt.err) || rec == nil || !rec.Undone || len(rec.Ops) > 0 {
				t.Errorf("%s: %v, %+v", name, err, rec)
			}
			if _, known := w.s.View().Status(key("a/1")); known {
				t.Errorf("%s: a value is desired", name)
			}
		}
		if _, err := w.s.Commit(t.Context(), kvscheduler.Txn{
			Source: "one",
			Set:    []kvscheduler.Object{put("a/1", thing{})},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.s.Commit(t.Context(), kvscheduler.Txn{
			Source: "two",
			Set:    []kvscheduler.Object{put("a/1", thing{})},
		}); !errors.Is(err, kvscheduler.ErrConflict) {
			t.Errorf("another source sets the object: %v", err)
		}
	})
}

func TestTheLogGoesOnFromANumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{Records: 3}) })
		defer w.end()
		var last uint64
		for _, name := range []string{"a/1", "a/2", "a/3", "a/4", "a/5"} {
			last = w.put(put(name, thing{})).Seq
		}
		seqs := func(since uint64) (seqs []uint64) {
			for rec := range w.s.Log(since) {
				seqs = append(seqs, rec.Seq)
			}
			return seqs
		}
		if all := seqs(0); !slices.Equal(all, []uint64{last - 2, last - 1, last}) {
			t.Errorf("records %v are kept, the last is %d", all, last)
		}
		if one := seqs(last - 1); !slices.Equal(one, []uint64{last}) || len(seqs(last)) > 0 {
			t.Errorf("after %d come %v", last-1, one)
		}
		for rec := range w.s.Log(0) {
			if rec.Seq != last-2 {
				t.Errorf("the first is %d", rec.Seq)
			}
			break
		}
	})
}
