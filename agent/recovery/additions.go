package recovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

const (
	// fatalAdditions is the number of consecutive crashes of the dataplane during ADDs of one pod after which the pod is refused. A dataplane
	// that is killed at random moments rarely ends three times in the same pod's ADD, which takes milliseconds.
	fatalAdditions = 3
	// refusal is the time for which such a pod is refused. Then one ADD is tried: the dataplane may have been upgraded.
	refusal = 30 * time.Minute
	// mostAdditions limits the pods that are remembered.
	mostAdditions = 1024
)

// additions attributes crashes of the dataplane to pods that were being added. A failed ADD has no attachment that a quarantine could withhold,
// and the runtime repeats it with new sandboxes, so each try would kill the dataplane again.
//
//	        crash during the ADD         three times in a row
//	(none) ----------------------> counted -------------------> refused
//	  ^                               |                            |
//	  |<--------- an ADD ends without a crash, or is released -----|
type additions struct {
	connection func() *southbound.Connection // to the dataplane; nil: crashes are not attributed
	now        func() time.Time

	mu sync.Mutex
	of map[pod.ID]*addition
}

// addition is what is known of the ADDs of a pod that failed.
type addition struct {
	crashes int
	since   time.Time // when the last crash happened

	// The last try, until it is known whether the dataplane crashed then. The agent notices a lost connection after the ADD has failed.
	conn         *southbound.Connection
	began, ended time.Time
}

func newAdditions() additions {
	return additions{now: time.Now, of: make(map[pod.ID]*addition)}
}

// begin refuses an ADD, or watches it until done or failed.
func (a *additions) begin(id pod.ID, t *eventloop.Txn) error {
	if a.connection == nil || id.IsZero() {
		return nil
	}
	conn := a.connection()
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.attributeLocked(id)
	if known != nil && known.crashes >= fatalAdditions && a.now().Sub(known.since) < refusal {
		return pod.Errorf(pod.CodeRefused, "refused since %s: %s; it is tried again at %s; weftctl quarantine release %s permits it now",
			known.since.Format(time.RFC3339), known.reason(), known.since.Add(refusal).Format(time.RFC3339), id)
	}
	if conn == nil || conn.IsLost() {
		return nil // the ADD fails for a reason that says nothing about the pod
	}
	began := a.now()
	t.OnRollback(func() error {
		a.failed(id, addition{conn: conn, began: began, ended: a.now()})
		return nil
	})
	t.OnCommit(func() { a.forget(id) })
	return nil
}

// attributeLocked decides whether the dataplane crashed during the last try of a pod, and returns what is known of the pod; nil: nothing.
func (a *additions) attributeLocked(id pod.ID) *addition {
	known := a.of[id]
	if known == nil || known.conn == nil {
		return known
	}
	conn := known.conn
	known.conn = nil
	isCrash := conn.IsLost() && !conn.LostAt.Before(known.began) && conn.LostAt.Before(known.ended.Add(settling))
	if !isCrash {
		delete(a.of, id)
		return nil
	}
	known.crashes = min(known.crashes+1, fatalAdditions)
	known.since = conn.LostAt
	return known
}

// failed notes a try that failed.
func (a *additions) failed(id pod.ID, try addition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.of[id]
	if known == nil {
		if len(a.of) >= mostAdditions {
			a.dropOldestLocked()
		}
		known = &addition{}
		a.of[id] = known
	}
	known.conn = try.conn
	known.began = try.began
	known.ended = try.ended
}

func (a *additions) dropOldestLocked() {
	var oldest pod.ID
	for id, of := range a.of {
		if oldest.IsZero() || of.ended.Before(a.of[oldest].ended) {
			oldest = id
		}
	}
	delete(a.of, oldest)
}

func (a *additions) forget(id pod.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, id)
}

// release permits the ADDs of a pod, and returns how many pods of the name were refused.
func (a *additions) release(name string) (released int) {
	for _, s := range a.refused() {
		if s.Pod.String() == name {
			a.forget(s.Pod)
			released++
		}
	}
	return released
}

// refused lists the refused pods.
func (a *additions) refused() (list []Suspicion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.of {
		known := a.attributeLocked(id)
		if known != nil && known.crashes >= fatalAdditions && a.now().Sub(known.since) < refusal {
			list = append(list, Suspicion{Pod: id, State: stateRefused, Crashes: known.crashes, Since: known.since, Reason: known.reason()})
		}
	}
	slices.SortFunc(list, func(x, y Suspicion) int { return cmp.Compare(x.Pod.String(), y.Pod.String()) })
	return list
}

func (a *addition) reason() string {
	return fmt.Sprintf("the dataplane died %d times in a row while the pod was added", a.crashes)
}

// Admit is the handler that refuses a pod whose ADDs kill the dataplane.
func (q *Quarantine) Admit(_ context.Context, ev *pod.AddPod, t *eventloop.Txn) error {
	return q.additions.begin(ev.ID, t)
}

// Attribute makes the quarantine attribute crashes of the dataplane to ADDs. It is called before the event loop runs.
func (q *Quarantine) Attribute(connection func() *southbound.Connection) {
	q.additions.connection = connection
}
