package kvscheduler_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// An object that must be recreated is not as before, although its value is: what it stands on is not.
func TestAnObjectThatAnUndoCouldNotRecreateIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.s.Ready("test")
		w.put(put("a/1", thing{}), put("c/1", thing{Needs: "a/1"}))
		deletions := 0
		w.m.Fail(func(verb kvscheduler.Verb, r ref) kvschedulertest.Fault {
			if r == key("b/refused") {
				return kvschedulertest.Refuse
			}
			if r != key("c/1") || verb != kvscheduler.Delete {
				return kvschedulertest.Fine
			}
			if deletions++; deletions == 2 { // that of the undo
				return kvschedulertest.Refuse
			}
			return kvschedulertest.Fine
		})
		_, err := w.commit(kvscheduler.Atomic, put("a/1", thing{Type: 1}), put("b/refused", thing{Needs: "c/1"}))
		if !errors.Is(err, kvscheduler.ErrIncomplete) ||
			!strings.Contains(err.Error(), kvscheduler.ErrIncomplete.Error()+": a/1, c/1") {
			t.Errorf("after %d deletions: %v", deletions, err)
		}
		w.m.Fail(nil)
		w.converge(map[ref]thing{key("a/1"): {}, key("c/1"): {Needs: "a/1"}})
	})
}
