package kvscheduler_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestAnAtomicTransactionStartsNoCallAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for mode, want := range map[kvscheduler.Mode][]string{
			kvscheduler.Atomic:     {"a create 1"},
			kvscheduler.BestEffort: {"a create 1", "b create 1"},
		} {
			w := start(t, kvschedulertest.New(), nil)
			w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
				if r == key("a/1") {
					return kvschedulertest.Refuse
				}
				return kvschedulertest.Fine
			})
			_, err := w.commit(mode, put("a/1", thing{}), put("b/1", thing{}))
			var calls []string
			for _, c := range w.m.Calls() {
				calls = append(calls, string(c.Kind)+" "+c.Verb.String()+" "+strings.Join(c.Names, " "))
			}
			if err == nil || !slices.Equal(calls, want) {
				t.Errorf("mode %d: calls %q, want %q (%v)", mode, calls, want, err)
			}
			w.end()
		}
	})
}
