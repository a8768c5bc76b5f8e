package kvscheduler_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/kvscheduler/kvschedulertest"
)

// A call that hangs may do something else than it was asked for, such as create an interface under another name.
// Nothing else looks for that.
func TestWhatAHangingCallLeftUnderAnotherNameIsRemovedWhenItReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		w.s.Ready("test")
		release := w.m.Hold("b")
		if _, err := w.commit(kvscheduler.BestEffort, put("b/1", thing{})); err == nil {
			t.Error("a call without an answer is no error")
		}
		w.m.Tamper(key("b/untagged"), &thing{})
		release()
		synctest.Wait()
		if there, _ := w.m.Has(key("b/untagged")); there {
			t.Error("the object is still there when the call has returned")
		}
		if there, _ := w.m.Has(key("b/1")); !there {
			t.Error("the desired object is not there")
		}
	})
}

// An object whose state is not known waits while a call of its lane hangs, and not for its next retry when the call has
// returned: that may be a minute later.
func TestAnObjectOfUnknownStateIsReadWhenTheHangingCallOfItsLaneReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kvschedulertest.New()
		broken := &atomic.Bool{}
		s := kvscheduler.New(kvscheduler.Limited(kvscheduler.Limits{NoJitter: true}))
		a := m.Descriptor("a", "one")
		a.Backend = unreadable{a.Backend, broken}
		must2(kvschedulertest.Register(s, a))(t)
		must2(kvschedulertest.Register(s, m.Descriptor("b", "one")))(t)
		runScheduler(t, s)
		commit := func(o kvscheduler.Object) {
			t.Helper()
			if _, err := s.Commit(t.Context(), kvscheduler.Txn{Set: []kvscheduler.Object{o}}); err == nil {
				t.Errorf("%s: an operation of unknown outcome is no error", o.Ref)
			}
		}
		broken.Store(true)
		m.Fail(func(kvscheduler.Verb, ref) kvschedulertest.Fault { return kvschedulertest.LoseCall })
		commit(put("a/1", thing{}))
		synctest.Wait() // the comparison of the kind has failed
		m.Fail(nil)
		broken.Store(false)
		release := m.Hold("b")
		commit(put("b/1", thing{}))
		<-time.After(10 * time.Minute) // several retries
		release()
		synctest.Wait()
		if there, _ := m.Has(key("a/1")); !there {
			t.Error("the object waits for its next retry")
		}
	})
}

// A transaction may reach its time limit after a part of its operations. The others are not forgotten until the next
// commit.
func TestOperationsThatWereNotBegunAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, kvschedulertest.New(), nil)
		defer w.end()
		release := w.m.Hold("a")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			set := []kvscheduler.Object{put("a/1", thing{}), put("b/1", thing{})}
			_, _ = w.s.Commit(t.Context(), kvscheduler.Txn{
				Source:  "test",
				Mode:    kvscheduler.BestEffort,
				Set:     set,
				Timeout: time.Second,
			})
		}()
		<-w.m.Entered()
		<-time.After(time.Second + time.Millisecond) // the call returns soon after the limit, so it is not abandoned
		release()
		<-ended
		synctest.Wait()
		if there, _ := w.m.Has(key("b/1")); there {
			t.Fatal("the operation was begun, so this tests nothing")
		}
		<-time.After(time.Minute)
		for _, r := range []ref{key("a/1"), key("b/1")} {
			if there, _ := w.m.Has(r); !there {
				t.Errorf("%s is not there", r)
			}
		}
	})
}
