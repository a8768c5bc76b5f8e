package kvscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

func TestOperationsThatFailForOneCauseAreOneError(t *testing.T) {
	w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{RetryMin: 1 << 40}) })
	defer w.end()
	w.m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
	var set []kvscheduler.Object
	for i := range 12 {
		set = append(set, put(fmt.Sprintf("a/%02d", i), thing{}))
	}
	_, err := w.commit(kvscheduler.BestEffort, set...)
	if err == nil {
		t.Fatal("the operations succeeded")
	}
	text := err.Error()
	if strings.Contains(text, "\n") || !strings.HasPrefix(text, "create a/00, a/01, ") ||
		!strings.Contains(text, "a/07 and 4 more: ") {
		t.Errorf("the error is %q", text)
	}
	if _, ok := errors.AsType[*kvscheduler.OpError](err); !ok {
		t.Errorf("the cause is lost: %v", err)
	}
	st, _ := w.s.View().Status(key("a/03"))
	if st.Err == nil || !strings.HasPrefix(st.Err.Error(), "create a/03: ") {
		t.Errorf("the status of one object says %v", st.Err)
	}
}

func TestOperationsThatFailForDifferentCausesAreAllNamed(t *testing.T) {
	w := start(t, kvschedulertest.New(), func(c *kvscheduler.Config) { c.Limit(kvscheduler.Limits{RetryMin: 1 << 40}) })
	defer w.end()
	w.m.Fail(func(_ kvscheduler.Verb, r ref) kvschedulertest.Fault {
		if r == key("a/2") {
			return kvschedulertest.LoseCall
		}
		return kvschedulertest.Refuse
	})
	_, err := w.commit(kvscheduler.BestEffort, put("a/1", thing{}), put("a/2", thing{}), put("a/3", thing{}))
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "create a/1, a/3: ") ||
		!strings.Contains(err.Error(), "create a/2: ") {
		t.Errorf("the error is %q", err)
	}
}

func TestAnObjectThatWaitsIsNamedOnceWhateverWaitsForIt(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	set := []kvscheduler.Object{put("a/0", thing{Needs: "b/missing"})}
	for i := range 11 {
		set = append(set, put(fmt.Sprintf("a/%d", i+1), thing{Needs: fmt.Sprintf("a/%d", i)}))
	}
	set = append(set, put("c/own", thing{Needs: "a/3", Near: "b-none"}))
	_, err := w.s.Commit(context.Background(), kvscheduler.Txn{
		Source:    "test",
		Mode:      kvscheduler.Atomic,
		NoPending: true,
		Set:       set,
	})
	if !errors.Is(err, kvscheduler.ErrPending) {
		t.Fatalf("got %v", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "a/0 waits for b/missing") ||
		!strings.HasPrefix(lines[1], "c/own waits for") ||
		lines[2] != "11 more objects wait for these" {
		t.Errorf("the error is %q", lines)
	}
}

// An external value may have patched an object so that it waits: a pod that does not need it starts.
func TestAnUnchangedObjectThatWaitsDoesNotFailAnAtomicTransaction(t *testing.T) {
	w := start(t, kvschedulertest.New(), nil)
	defer w.end()
	waits := put("a/shared", thing{Needs: "b/missing"})
	w.put(waits)
	commit := func(set ...kvscheduler.Object) error {
		_, err := w.s.Commit(context.Background(), kvscheduler.Txn{
			Source:    "test",
			Mode:      kvscheduler.Atomic,
			NoPending: true,
			Set:       set,
		})
		return err
	}
	if err := commit(waits, put("a/pod", thing{})); err != nil {
		t.Errorf("a transaction beside the object: %v", err)
	}
	if err := commit(waits, put("a/pod2", thing{Needs: "a/shared"})); !errors.Is(err, kvscheduler.ErrPending) {
		t.Errorf("a transaction that needs the object: %v, want %v", err, kvscheduler.ErrPending)
	}
	if err := commit(put("a/shared", thing{Needs: "b/missing", Version: 1})); !errors.Is(err, kvscheduler.ErrPending) {
		t.Errorf("a transaction that changes the object: %v, want %v", err, kvscheduler.ErrPending)
	}
}

// A transaction that repairs an object also does what was left out because of the object's failure.
func TestWhatWasLeftOutIsDoneWithTheNextTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.put(put("a/1", thing{}), put("c/1", thing{Needs: "a/1"}))
		w.m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.Refuse })
		if _, err := w.commit(kvscheduler.BestEffort, del("a/1"), put("c/1", thing{Version: 1})); err == nil {
			t.Error("a refused delete is no error")
		}
		w.m.Fail(nil)
		rec := w.put(put("c/1", thing{Version: 2}))
		if there, _ := w.m.Has(key("a/1")); there {
			t.Errorf("a/1 is still there, operations %q", ops(rec))
		}
		w.converge(map[ref]thing{key("c/1"): {Version: 2}})
	})
}
