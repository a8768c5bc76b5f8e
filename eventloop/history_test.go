package eventloop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/eventloop/eventlooptest"
)

func seqs(records []eventloop.Record) []uint64 {
	var s []uint64
	for _, r := range records {
		s = append(s, r.Seq)
	}
	return s
}

func TestHistoryIsReadableWhileACommitHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t, quiet)
		w.hang()
		w.begin(t.Context(), &addPod{pod: "p", sandbox: "a"})
		if _, err := w.Do(t.Context(), unknown{}); err == nil { // refused meanwhile
			t.Error("not refused")
		}
		if got := seqs(w.History(0)); !slices.Equal(got, []uint64{1, 3}) {
			t.Errorf("history has %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		next, stop := iter.Pull(w.Watch(ctx, 1))
		defer stop()
		if r, _ := next(); r.Seq != 2 { // waits for the running one, to keep the order
			t.Errorf("watched %v", r)
		}
		if r, _ := next(); r.Seq != 3 {
			t.Errorf("watched %v", r)
		}
		cancel()
		if r, ok := next(); ok {
			t.Errorf("goes on with %v", r)
		}
	})
}

func TestHistoryIsACopy(t *testing.T) {
	w := ready(t)
	rec := w.must(t, &addPod{pod: "p", sandbox: "a"})
	rec.Handlers[0].Changes[0] = "spoilt"
	rec.Steps[0].Name = "spoilt"
	w.last(t).Order[0] = "spoilt"
	if rec, err := w.Do(t.Context(), unknown{}); err != nil {
		rec.Steps[0].Name = "spoilt"
	}
	b, err := json.Marshal(w.History(0))
	if err != nil || strings.Contains(string(b), "spoilt") {
		t.Errorf("%v: %s", err, b)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	for name, limit := range map[string]option{
		"by count": func(c *eventloop.Config) { c.Limit(eventloop.Limits{Records: 5}) },
		"by bytes": func(c *eventloop.Config) { c.Limit(eventloop.Limits{HistoryBytes: 6000}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := ready(t, limit)
			var last uint64
			for i := range 40 {
				last = w.must(t, &addPod{pod: fmt.Sprint(i), sandbox: fmt.Sprint(i)}).Seq
			}
			kept := w.History(0)
			if n := len(kept); n < 3 || n > 6 || kept[n-1].Seq != last {
				t.Errorf("%d records kept, the last is %v", n, kept[n-1])
			}
			// the last event was saved before its record evicted another one
			if saved := w.saver.Records(); len(saved) > len(kept)+2 || saved[len(saved)-1].Seq != last {
				t.Errorf("%d records saved, %d kept", len(saved), len(kept))
			}
		})
	}
}

func TestEvictedRecordsAreDeletedFromTheStateFileOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *eventloop.Config) { c.Limit(eventloop.Limits{Records: 2}) })
		deleted := map[string]int{}
		var refusing atomic.Int32
		w.saver.Before(func(_ context.Context, saved []eventloop.Saved) error {
			for _, s := range saved {
				if s.Value == nil {
					deleted[s.Key]++
				}
			}
			for i := 0; refusing.Load() > 0 && i < 4; i++ { // they push out records that are being saved
				if _, err := w.Do(t.Context(), unknown{}); err == nil {
					t.Error("not refused")
				}
			}
			refusing.Add(-1)
			return nil
		})
		stop := eventlooptest.Ready(t, w.Loop)
		refusing.Store(2)
		w.must(t, &deletePod{"p", "a"})
		for range 3 {
			w.must(t, &change{"k", "v"})
		}
		stop()
		for key, n := range deleted {
			if n != 1 && strings.HasPrefix(key, "0") {
				t.Errorf("record %s was deleted %d times", key, n)
			}
		}
		if saved, kept := w.saver.Records(), w.History(0); !slices.Equal(seqs(saved), seqs(kept)) || len(kept) != 2 {
			t.Errorf("saved %v, kept %v", saved, kept)
		}
	})
}

func TestASlowReaderSeesAGap(t *testing.T) {
	w := ready(t, func(c *eventloop.Config) { c.Limit(eventloop.Limits{Records: 3}) })
	next, stop := iter.Pull(w.Watch(t.Context(), 0))
	defer stop()
	first, _ := next()
	for i := range 10 {
		w.must(t, &addPod{pod: fmt.Sprint(i), sandbox: fmt.Sprint(i)})
	}
	second, _ := next()
	if first.Seq != 1 || second.Seq != 9 {
		t.Errorf("saw #%d, then #%d", first.Seq, second.Seq)
	}
}

func TestWatchEndsWithTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stop := eventlooptest.Ready(t, w.Loop)
		watched := make(chan []uint64)
		go func() {
			var got []uint64
			for r := range w.Watch(context.Background(), 0) {
				got = append(got, r.Seq)
			}
			watched <- got
		}()
		w.must(t, &addPod{pod: "p", sandbox: "a"})
		stop()
		if got := <-watched; !slices.Equal(got, []uint64{1, 2}) {
			t.Errorf("watched %v", got)
		}
	})
}

func TestHistorySurvivesAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := ready(t)
		w.must(t, &addPod{pod: "p", sandbox: "a"})
		w.failIn["second"] = errBoom
		if _, err := w.Do(t.Context(), &addPod{pod: "q", sandbox: "b"}); err == nil {
			t.Error("no error")
		}
		if _, err := w.Do(t.Context(), unknown{}); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		saved := w.saver.Records() // as a process that is killed now leaves them
		next := newWorld(t)
		next.Restore(saved)
		next.run(t)
		rec := next.must(t, &addPod{pod: "p", sandbox: "a"})
		if got := seqs(next.History(0)); rec.Seq != 6 || !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 6}) {
			t.Errorf("history %v, then #%d", got, rec.Seq)
		}
		if r := next.History(2)[0]; r.Err != "second: boom" || !r.Undone {
			t.Errorf("restored %v", r)
		}
	})
}

// The state file has records of earlier versions, which had all keys at the top.
func TestRecordOfAnEarlierVersionIsRead(t *testing.T) {
	const saved = `{"seq":7,"event":"add","kind":"update","started":"2026-01-02T03:04:05Z","queued":1,"took":1000000,` +
		`"transactions":[4],"undone":true,"repeats":2,"err":"no"}`
	var r eventloop.Record
	if err := json.Unmarshal([]byte(saved), &r); err != nil {
		t.Fatal(err)
	}
	if got := r.String(); got != "#7 add: undone after 1ms: no" || r.Kind != "update" || r.Repeats != 2 ||
		!slices.Equal(r.Transactions, []uint64{4}) {
		t.Errorf("read %+v", r)
	}
}

func TestRecordString(t *testing.T) {
	w := ready(t, func(c *eventloop.Config) { c.OnVerify = nil })
	w.must(t, &addPod{pod: "p", sandbox: "a"})
	for _, tc := range []struct{ want, got string }{
		{"#2 add p/a: ok, 2 changes, 2 operations, ", w.last(t).String()},
		{
			"#7 add: undone after 1ms: a; b",
			eventloop.Record{
				Seq:     7,
				Event:   "add",
				Course:  eventloop.Course{Started: w.last(t).Started, Took: 1e6},
				Failure: eventloop.Failure{Undone: true, Err: "a\nb"},
			}.String(),
		},
		{"#8 x: not handled: no", eventloop.Record{Seq: 8, Event: "x", Failure: eventloop.Failure{Err: "no"}}.String()},
		{
			"#9 x: failed after 0s: no, left behind: k, l, verification found 1 differences",
			eventloop.Record{
				Seq:     9,
				Event:   "x",
				Course:  eventloop.Course{Started: w.last(t).Started},
				Failure: eventloop.Failure{Err: "no", Stuck: []string{"k", "l"}, Verify: []string{"d"}},
			}.String(),
		},
	} {
		if !strings.HasPrefix(tc.got, tc.want) {
			t.Errorf("got  %s\nwant %s", tc.got, tc.want)
		}
	}
}

func TestARefusalForAnotherReasonIsNoRepeat(t *testing.T) {
	w := ready(t)
	refuse := func(reason error) eventloop.Record {
		_, err := w.Do(t.Context(), &addPod{pod: "p", sandbox: "a", invalid: reason})
		if !errors.Is(err, reason) {
			t.Errorf("refused for %v, want %v", err, reason)
		}
		return w.last(t)
	}
	other := errors.New("another reason")
	first := refuse(errBoom)
	repeated := refuse(errBoom)
	if repeated.Seq != first.Seq || repeated.Repeats != 1 {
		t.Errorf("a repeat: %+v", repeated)
	}
	if last := refuse(other); last.Seq == first.Seq || !strings.Contains(last.Err, other.Error()) {
		t.Errorf("another reason: %+v", last)
	}
}
