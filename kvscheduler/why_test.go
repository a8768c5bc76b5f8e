package kvscheduler_test

import (
	"bytes"
	"strings"
	"testing"

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
			"a/1 waits for seen/x: no object of that name was seen or is desired",
		},
		"a/2":    {"a/2 waits for c/bad: it failed", "c/bad is Failed: create c/bad: refused on purpose (1 failed, next retry in "},
		"b/2":    {`b/2 waits for any a of "a7": no such object is applied`},
		"c/fine": nil,
		"c/none": {"c/none: no desired object of that name"},
		"z/1":    {"z/1: no such kind"},
	} {
		got := w.s.Why(key(object))
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
	var dot bytes.Buffer
	must(t, w.s.WriteDOT(&dot, key("b/1")))
	for _, line := range []string{`"a/1" -> "b/1" [style=dashed]`, `"b/1" -> "c/none" [style=dashed]`} {
		if !strings.Contains(dot.String(), line) {
			t.Errorf("no %s in %s", line, dot.String())
		}
	}
	if strings.Contains(dot.String(), "c/fine") {
		t.Error("drawn although it is no neighbour")
	}
}
