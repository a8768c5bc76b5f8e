package eventloop

import (
	"fmt"
	"sync"
	"testing"
)

// While the disk is full no record becomes durable, and nothing may grow with the number of attempts.
func TestRecordsThatWereNeverSavedNeedNoDelete(t *testing.T) {
	h := newHistory(4, 1<<20)
	add := func(saved bool) { h.add(Record{Seq: h.begin()}, saved) }
	for range 3 {
		add(true)
	}
	for range 1000 {
		add(false)
	}
	if n := len(h.evicted); n != 3 {
		t.Fatalf("%d records are to be deleted, want the 3 that were saved", n)
	}
	saves, saved := h.unsaved()
	if len(saves) != 3+4 {
		t.Errorf("%d changes are to be saved", len(saves))
	}
	saved()
	for range 4 {
		add(false)
	}
	if n := len(h.evicted); n != 4 {
		t.Errorf("%d records are to be deleted, want the 4 that were saved meanwhile", n)
	}
}

func TestOwedValuesAreTheLastOfEachKey(t *testing.T) {
	var o owed
	for i := range 1000 {
		o.add([]Saved{{"attachments", "a", i}, {"attachments", fmt.Sprint(i % 3), i}})
	}
	o.add([]Saved{{"leases", "a", nil}})
	got := o.list()
	if len(got) != 5 || got[0] != (Saved{"attachments", "a", 999}) || got[4] != (Saved{"leases", "a", nil}) {
		t.Errorf("owed are %v", got)
	}
}

// Refused events get their numbers in the goroutines of their callers, beside the loop. A reader that follows the
// records gets each of them.
func TestAFollowerGetsEachRefusedEvent(t *testing.T) {
	const (
		callers = 8
		each    = 500
	)
	h := newHistory(callers*each+1, 1<<30)
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for range each {
				h.addRefused(&Record{Event: "refused"})
			}
		})
	}
	var last uint64
	for last < callers*each {
		r, ok, grown, _ := h.after(last)
		if !ok {
			<-grown
			continue
		}
		if r.Seq != last+1 {
			t.Fatalf("after record %d comes %d", last, r.Seq)
		}
		last = r.Seq
	}
	calling.Wait()
}
