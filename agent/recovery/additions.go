package recovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

const (
	// fatalAdditions is the number of consecutive crashes of the dataplane during ADDs of one pod after which the pod
	// is refused. A dataplane that is killed at random moments rarely ends three times in the same pod's ADD, which
	// takes milliseconds.
	fatalAdditions = 3
	// refusal is the time for which such a pod is refused. Then one ADD is tried: the dataplane may have been upgraded.
	refusal = 30 * time.Minute
	// mostAdditions limits the pods that are remembered.
	mostAdditions = 1024
	// staleAddition is the time after its last crash for which a pod is remembered over a restart of the agent. kubelet
	// repeats an ADD within minutes, so such a pod is gone.
	staleAddition = 24 * time.Hour
)

// additions attributes crashes of the dataplane to pods that were being added. A failed ADD has no attachment that a
// quarantine could withhold, and the runtime repeats it with new sandboxes, so each try would kill the dataplane again.
//
//	        crash during the ADD         three times in a row
//	(none) ----------------------> counted -------------------> refused
//	  ^                               |                            |
//	  |<--------- an ADD ends without a crash, or is released -----|
//
// Counts of crashes are durable: a restart of the agent does not start over. The last try, which may be one, is not.
type additions struct {
	connection func() *southbound.Connection // to the dataplane; nil: crashes are not attributed
	now        func() time.Time
	changed    func(id pod.ID) // is called, with mu held, when the durable part of a pod changed

	mu sync.Mutex
	of map[pod.ID]*addition
}

// addition is the record of a pod's failed ADDs.
type addition struct {
	crashes int
	since   time.Time // when the last crash happened

	// The last try, until it is known whether the dataplane crashed then. The agent notices a lost connection after the
	// ADD has failed.
	conn         *southbound.Connection
	began, ended time.Time
}

func newAdditions() additions {
	return additions{now: time.Now, changed: func(pod.ID) {}, of: make(map[pod.ID]*addition)}
}

// additionKey is the key of a pod's record in the state file. Keys of attachments have fewer parts.
func additionKey(id pod.ID) string { return "addition/" + id.String() + "/" + id.UID }

// restore takes over the record of a pod from an earlier run of the agent.
func (a *additions) restore(s *Suspicion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now().Sub(s.Since) >= staleAddition {
		a.changed(s.Pod)
		return
	}
	a.of[s.Pod] = &addition{crashes: s.Crashes, since: s.Since}
}

// saved returns the durable part of a pod's record; nil: the pod has no record.
func (a *additions) saved(id pod.ID) any {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.of[id]; known != nil && known.crashes > 0 {
		return *known.suspicion(id)
	}
	return nil
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
	if known != nil && known.isRefused(a.now()) {
		return pod.Errorf(pod.CodeRefused,
			"refused since %s: %s; it is tried again at %s; weftctl quarantine release %s permits it now",
			known.since.Format(time.RFC3339), known.reason(), known.since.Add(refusal).Format(time.RFC3339), id)
	}
	if conn == nil || conn.IsLost() || t.IsPlan() {
		return nil // a failed ADD is no evidence against the pod
	}
	began := a.now()
	t.OnRollback(func() error {
		a.failed(id, addition{conn: conn, began: began, ended: a.now()})
		return nil
	})
	if known != nil && known.crashes > 0 {
		t.Save(statefile.BucketQuarantine, additionKey(id), nil)
	}
	t.OnCommit(func() { a.drop(id) })
	return nil
}

// attribute decides for all pods whether the dataplane crashed during the last try.
func (a *additions) attribute() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Collect(maps.Keys(a.of)) {
		a.attributeLocked(id)
	}
}

// attributeLocked decides whether the dataplane crashed during the last try of a pod, and returns the record of
// the pod; nil: it has no record.
func (a *additions) attributeLocked(id pod.ID) *addition {
	known := a.of[id]
	if known == nil || known.conn == nil {
		return known
	}
	conn := known.conn
	if !conn.IsLost() && a.now().Before(known.ended.Add(settling)) {
		return known // the agent may notice a crash later
	}
	known.conn = nil
	isCrash := conn.IsLost() && !conn.LostAt.Before(known.began) && conn.LostAt.Before(known.ended.Add(settling))
	if !isCrash {
		a.forgetLocked(id)
		return nil
	}
	known.crashes = min(known.crashes+1, fatalAdditions)
	known.since = conn.LostAt
	a.changed(id)
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
	if known.conn != try.conn { // else the try before is not decided either
		known.began = try.began
	}
	known.conn = try.conn
	known.ended = try.ended
}

func (a *additions) dropOldestLocked() {
	var oldest pod.ID
	for id, of := range a.of {
		if oldest.IsZero() || of.last().Before(a.of[oldest].last()) {
			oldest = id
		}
	}
	a.forgetLocked(oldest)
}

// last is when the pod was added or the dataplane crashed last.
func (a *addition) last() time.Time {
	if a.ended.After(a.since) {
		return a.ended
	}
	return a.since
}

// drop forgets a pod. The event deletes its record in the state file.
func (a *additions) drop(id pod.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, id)
}

func (a *additions) forget(id pod.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetLocked(id)
}

func (a *additions) forgetLocked(id pod.ID) {
	if known := a.of[id]; known != nil && known.crashes > 0 {
		a.changed(id)
	}
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
		if known != nil && known.isRefused(a.now()) {
			list = append(list, *known.suspicion(id))
		}
	}
	slices.SortFunc(list, func(x, y Suspicion) int { return cmp.Compare(x.Pod.String(), y.Pod.String()) })
	return list
}

func (a *addition) isRefused(now time.Time) bool {
	return a.crashes >= fatalAdditions && now.Sub(a.since) < refusal
}

// suspicion returns the durable part of the record.
func (a *addition) suspicion(id pod.ID) *Suspicion {
	s := &Suspicion{Pod: id, State: stateCounted, Crashes: a.crashes, Since: a.since.UTC(), Reason: a.reason()}
	if a.crashes >= fatalAdditions {
		s.State = stateRefused
	}
	return s
}

func (a *addition) reason() string {
	return fmt.Sprintf("the dataplane died %d times in a row while the pod was added", a.crashes)
}

// Admit is the handler that refuses a pod if its ADDs kill the dataplane.
func (q *Quarantine) Admit(ctx context.Context, ev *pod.AddPod, t *eventloop.Txn) error {
	err := q.additions.begin(ev.ID, t)
	q.trySave(ctx)
	return err
}

// attribute attributes the crash of the last dataplane to pods that were being added, durably. No ADD is running.
func (q *Quarantine) attribute(ctx context.Context) {
	q.additions.attribute()
	q.save(ctx)
}

// Attribute makes the quarantine attribute crashes of the dataplane to ADDs. It is called before the event loop runs.
func (q *Quarantine) Attribute(connection func() *southbound.Connection) {
	q.additions.connection = connection
}
