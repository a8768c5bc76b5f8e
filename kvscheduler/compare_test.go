package kvscheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// differing returns "key: reason" of each comparison with a reason.
func differing(found []kvscheduler.Comparison) (lines []string) {
	for _, c := range found {
		if c.Reason != "" {
			lines = append(lines, c.Ref.String()+": "+c.Reason)
		}
	}
	return lines
}

func TestCompareReadsBackAndChangesNothing(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	w.put(put("a/1", thing{}), put("a/2", thing{}), put("b/1", thing{Needs: "a/9"}),
		put("c/1", thing{Secret: "marker"}))
	w.m.Calls()
	before := w.s.View().Rev()
	w.m.Tamper(key("a/1"), nil)
	w.m.Tamper(key("a/2"), &thing{Version: 9})
	w.m.Tamper(key("c/stray"), &thing{})
	found, err := w.s.Compare(t.Context())
	must(t, err)
	want := []string{"a/1: missing", "a/2: stored hash differs", "b/1: missing", "c/stray: there, but not desired"}
	if got := differing(found); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, c := range found {
		if c.Moving || c.Unread {
			t.Errorf("%s: moving %t, unread %t", c.Ref, c.Moving, c.Unread)
		}
		if text := fmt.Sprint(c); strings.Contains(text, "marker") {
			t.Errorf("the secret is not redacted: %s", text)
		}
	}
	some, err := w.s.Compare(t.Context(), key("a/2"), key("c/1"))
	must(t, err)
	if got := differing(some); len(some) != 2 || !slices.Equal(got, want[1:2]) {
		t.Errorf("named objects: got %q", got)
	}
	if calls, after := w.m.Calls(), w.s.View().Rev(); len(calls) > 0 || after != before {
		t.Errorf("calls %v, revision %d, then %d", calls, before, after)
	}
	if _, err := w.s.Compare(t.Context(), key("nothing/1")); err == nil {
		t.Error("an unknown kind is no error")
	}
}

// Compare agrees with a resync: it finds a difference exactly if a dry run plans an operation for the object.
func TestCompareFindsWhatAResyncRepairs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := start(rt, kvschedulertest.New(), nil)
		defer w.end()
		names := []string{"a/1", "a/2", "b/1", "b/2", "c/1"}
		for _, name := range names {
			if rapid.Bool().Draw(rt, "desired "+name) {
				w.put(put(name, thing{Version: rapid.IntRange(0, 2).Draw(rt, "version")}))
			}
			switch rapid.IntRange(0, 3).Draw(rt, "tampered "+name) {
			case 0:
				w.m.Tamper(key(name), nil)
			case 1:
				w.m.Tamper(key(name), &thing{Version: rapid.IntRange(0, 2).Draw(rt, "found version")})
			}
		}
		found, err := w.s.Compare(t.Context())
		must(rt, err)
		rec, err := w.resync(kvscheduler.ResyncOpt{DryRun: true, Force: true})
		must(rt, err)
		planned := make(map[string]bool)
		for _, o := range rec.Ops {
			planned[o.Ref] = true
		}
		for _, p := range rec.Pending { // undesired objects, which are not pruned
			planned[p.Ref] = true
		}
		for _, c := range found {
			if (c.Reason != "") != planned[c.Ref.String()] {
				rt.Errorf("%s: %q, and the resync plans %v", c.Ref, c.Reason, rec.Ops)
			}
		}
	})
}
