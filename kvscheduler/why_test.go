package kvscheduler_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestWhyWalksToTheRoots(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
		if r == key("c/bad") {
			return kvschedulertest.Refuse
		}
		return kvschedulertest.Fine
	})
	_, _ = w.commit(kvscheduler.BestEffort, put("a/1", thing{Needs: "b/1 seen/x"}), put("b/1", thing{Needs: "c/none"}),
		put("a/2", thing{Needs: "c/bad"}), put("c/bad", thing{}), put("b/2", thing{Near: "a7"}), put("c/fine", thing{}))
	for object, want := range map[string][]string{
		"a/1": {
			"a/1 waits for b/1: it is Pending",
			"b/1 waits for c/none: no desired object of that name",
			"a/1 waits for seen/x: no desired object of that name",
		},
		"a/2": {
			"a/2 waits for c/bad: it failed",
			"c/bad is Failed: create c/bad: refused on purpose (1 failed, next retry in ",
		},
		"b/2":    {`b/2 waits for any a of "a7": no such object is applied`},
		"c/fine": nil,
		"c/none": {"c/none: no desired object of that name"},
		"z/1":    {"z/1: no such kind"},
	} {
		got := textsOf(w.s.Why(key(object)))
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", object, got, want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s: %q, want %q", object, got[i], want[i])
			}
		}
	}
}

func textsOf(reasons []kvscheduler.Reason) (texts []string) {
	for _, r := range reasons {
		texts = append(texts, r.Text)
	}
	return texts
}

func TestWhyExplainsEachPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		w := start(t, m, nil)
		defer w.end()
		w.put(put("a/removed", thing{}), put("a/odd", thing{Bucket: "a7", Version: 1}),
			put("b/near", thing{Near: "a7"}), put("c/drifted", thing{}))
		m.Foreign(key("a/theirs"), thing{})
		m.Tamper(key("c/drifted"), &thing{Version: 5})
		must2(w.resync(kvscheduler.ResyncOpt{DryRun: true}))(t)
		m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
		_, _ = w.commit(kvscheduler.BestEffort, del("a/removed"), put("a/theirs", thing{}),
			put("a/bad", thing{Bad: true}),
			put("b/both", thing{Needs: "c/one c/two"}), put("c/one", thing{Needs: "c/root"}),
			put("c/two", thing{Needs: "c/root"}), put("c/root", thing{Needs: "c/gone"}),
			put("a/bad2", thing{Bad: true, Needs: "c/gone"}))
		for object, want := range map[string][]string{
			"a/removed": {
				"a/removed is Removing: delete a/removed: refused on purpose (1 failed, next retry in 100ms)",
				"a/removed is no longer desired, but still there",
			},
			"a/theirs":  {"a/theirs waits: an object that is not ours holds this name"},
			"a/bad":     {"a/bad is Invalid: bad on purpose"},
			"b/near":    {`b/near waits for any a of "a7": no such object is applied`},
			"c/drifted": {"c/drifted differs from what is desired; its repair is planned"},
			"b/both": { // the root is explained once
				"b/both waits for c/one: it is Pending",
				"c/one waits for c/root: it is Pending",
				"c/root waits for c/gone: no desired object of that name",
				"b/both waits for c/two: it is Pending",
				"c/two waits for c/root: it is Pending",
			},
		} {
			if got := textsOf(w.s.Why(key(object))); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", object, got, want)
			}
		}
	})
}

func TestWhyOfAPermanentFailureNamesNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permanent := &kvscheduler.OpError{
			Err:       errors.New("no such module"),
			Outcome:   kvscheduler.NotApplied,
			Permanent: true,
		}
		s, _ := withListed(t, map[string]listed{"x": {refuses: permanent}}, nil)
		_, _ = s.Commit(t.Context(), kvscheduler.Txn{Source: "test", Set: []kvscheduler.Object{intAt("x/1", 1)}})
		want := []string{"x/1 is Failed: create x/1: no such module (1 failed, no retry before something changes)"}
		reasons := s.Why(key("x/1"))
		if got := textsOf(reasons); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if r := reasons[0]; r.Ref != key("x/1") || r.Phase != kvscheduler.Failed || !errors.Is(r.Err, permanent) ||
			r.Attempt != 1 || !r.RetryAt.IsZero() {
			t.Errorf("%+v", r)
		}
	})
}

func TestWhyHasFieldsForPrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		w := start(t, m, nil)
		defer w.end()
		m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
		_, _ = w.commit(kvscheduler.BestEffort, put("b/1", thing{Needs: "c/1"}), put("c/1", thing{}))
		got := w.s.Why(key("b/1"))
		if len(got) != 2 || got[1].Err == nil || time.Until(got[1].RetryAt) != 100*time.Millisecond {
			t.Fatalf("%+v", got)
		}
		got[1].Err = nil
		got[1].RetryAt = time.Time{}
		want := []kvscheduler.Reason{
			{Ref: key("b/1"), Phase: kvscheduler.Pending, Text: "b/1 waits for c/1: it failed", WaitsFor: "c/1"},
			{
				Ref:     key("c/1"),
				Phase:   kvscheduler.Failed,
				Text:    "c/1 is Failed: create c/1: refused on purpose (1 failed, next retry in 100ms)",
				Attempt: 1,
			},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
		if absent := w.s.Why(key("c/none")); len(absent) != 1 || absent[0].Phase != kvscheduler.Absent ||
			absent[0].Ref != key("c/none") {
			t.Errorf("%+v", absent)
		}
	})
}
