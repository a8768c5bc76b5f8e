package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// States of an attachment that was being replayed when the dataplane died.
const (
	stateSuspect     = "suspect"
	stateQuarantined = "quarantined"
	stateRefused     = "refused" // a pod without an attachment: its ADDs killed the dataplane
	stateCounted     = "counted" // such a pod, which is not refused yet
)

// fatalReplays is how many crashes of a dataplane that replayed one attachment alone put the attachment into
// quarantine. One may be a coincidence.
const fatalReplays = 2

// mostListed limits the attachments that one line lists.
const mostListed = 16

// Suspicion is the record of an attachment that was being replayed when the dataplane died, or of a pod that was
// being added then, which has no key (see [additions]). It is durable.
//
//	      died while it was replayed with others          died while it was replayed alone, twice
//	(none) -----------------------------------> suspect -----------------------------------> quarantined
//	  ^                                            |                                              |
//	  |<---- the dataplane survived its replay ----|                                              |
//	  |<----------------------------- DEL ---------|<---------- released by an operator ----------|
//
// An attachment is quarantined at once if another node owns one of its addresses (see [replayer.isolate]).
//
// Suspects are replayed after all other attachments, and one at a time, so that a crash has one culprit.
type Suspicion struct {
	Key     pod.Key   `json:"key"`
	Pod     pod.ID    `json:"pod"`
	State   string    `json:"state"`
	Crashes int       `json:"crashes"`         // while it was replayed alone
	Flying  bool      `json:"flying"`          // an operation of it was under way when the dataplane died
	Taken   bool      `json:"taken,omitempty"` // quarantined because another node owns an address of it
	Since   time.Time `json:"since"`           // of the state
	Reason  string    `json:"reason"`
}

// name is what people call the attachment.
func (s *Suspicion) name() string { return (&pod.Attachment{Key: s.Key, Pod: s.Pod}).Name() }

// saver makes values durable.
type saver interface {
	Save(ctx context.Context, saved []eventloop.Saved) error
}

// Quarantine keeps the suspicions. Its methods may be called from anywhere.
type Quarantine struct {
	saver  saver
	health *health.Conditions
	log    *slog.Logger
	Tell   func(Suspicion) // is called when an attachment is quarantined

	additions additions

	saving sync.Mutex // one save at a time
	mu     sync.Mutex
	of     map[pod.Key]Suspicion
	dirty  map[string]func() any // changes that the state file does not have, by key there: the value of now, nil: none
}

// NewQuarantine returns an empty quarantine.
func NewQuarantine(s saver, h *health.Conditions, log *slog.Logger) *Quarantine {
	h.Advise(health.Quarantine)
	q := &Quarantine{
		saver:     s,
		health:    h,
		log:       log,
		Tell:      func(Suspicion) {},
		of:        make(map[pod.Key]Suspicion),
		dirty:     make(map[string]func() any),
		additions: newAdditions(),
	}
	q.additions.changed = q.noteAddition
	return q
}

// noteAddition notes a change of the durable record of a pod without an attachment. The next save writes it.
func (q *Quarantine) noteAddition(id pod.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dirty[additionKey(id)] = func() any { return q.additions.saved(id) }
}

// noteLocked notes a change of a suspicion. The next save writes it.
func (q *Quarantine) noteLocked(key pod.Key) {
	q.dirty[key.String()] = func() any {
		if s, is := q.find(key); is {
			return s
		}
		return nil
	}
}

// Register adds the handlers that refuse a pod, and that end the record of an attachment with its DEL.
func (q *Quarantine) Register(l *eventloop.Loop) {
	eventloop.On(l, "quarantine", q.Admit)
	eventloop.On(l, "quarantine", q.Forget)
}

// Listed lists all suspicions, and the pods that are refused.
func (q *Quarantine) Listed() []Suspicion { return append(q.additions.refused(), q.All()...) }

// Forget ends the suspicion of an attachment that is deleted.
func (q *Quarantine) Forget(_ context.Context, ev *pod.DeletePod, t *eventloop.Txn) error {
	if _, ok := q.find(ev.Key); ok {
		t.Save(statefile.BucketQuarantine, ev.Key.String(), nil)
		t.OnCommit(func() { q.drop(ev.Key) })
	}
	return nil
}

// Restore takes over the records of an earlier run: of attachments that are still there, and of pods with ADDs that
// killed the dataplane.
func (q *Quarantine) Restore(kept []Suspicion, attachments []*pod.Attachment) {
	for i := range kept {
		if s := &kept[i]; s.State == stateRefused || s.State == stateCounted {
			q.additions.restore(s)
		}
	}
	q.mu.Lock()
	for _, s := range kept {
		if slices.ContainsFunc(attachments, func(a *pod.Attachment) bool { return a.Key == s.Key }) {
			q.of[s.Key] = s
		}
	}
	q.mu.Unlock()
	q.report()
}

// All lists the suspicions: the quarantined ones first, then in the order of their replay.
func (q *Quarantine) All() []Suspicion {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]Suspicion, 0, len(q.of))
	for _, s := range q.of {
		all = append(all, s)
	}
	// Those that are the least likely culprits are replayed first, so that most pods are connected when the dataplane
	// dies again.
	rank := func(s Suspicion) int {
		switch {
		case s.State == stateQuarantined:
			return -1
		case s.Flying:
			return 2*s.Crashes + 1
		}
		return 2 * s.Crashes
	}
	slices.SortFunc(all, func(a, b Suspicion) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return all
}

// find returns the suspicion of an attachment.
func (q *Quarantine) find(key pod.Key) (Suspicion, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s, ok := q.of[key]
	return s, ok
}

// Count is the number of quarantined attachments.
func (q *Quarantine) Count() int {
	n := 0
	for _, s := range q.All() {
		if s.State == stateQuarantined {
			n++
		}
	}
	return n
}

// Keys are the attachments under suspicion, which no replay of all makes.
func (q *Quarantine) Keys() []pod.Key {
	var keys []pod.Key
	for _, s := range q.All() {
		keys = append(keys, s.Key)
	}
	return keys
}

// suspects are those that are to be replayed, one at a time.
func (q *Quarantine) suspects() []Suspicion {
	return slices.DeleteFunc(q.All(), func(s Suspicion) bool { return s.State != stateSuspect })
}

// put stores suspicions and makes them durable, with all earlier changes that are not.
func (q *Quarantine) put(ctx context.Context, changed ...Suspicion) {
	q.mu.Lock()
	for _, s := range changed {
		q.of[s.Key] = s
		q.noteLocked(s.Key)
	}
	q.mu.Unlock()
	q.save(ctx)
	q.report()
	for _, s := range changed {
		if s.State == stateQuarantined {
			q.log.Error("attachment quarantined", "pod", s.Pod.String(), "container", s.Key.ContainerID,
				"reason", s.Reason)
			q.Tell(s)
		}
	}
}

// clear removes the suspicion of an attachment, durably.
func (q *Quarantine) clear(ctx context.Context, key pod.Key) {
	q.mu.Lock()
	q.noteLocked(key)
	q.mu.Unlock()
	q.drop(key)
	q.save(ctx)
}

func (q *Quarantine) drop(key pod.Key) {
	q.mu.Lock()
	delete(q.of, key)
	q.mu.Unlock()
	q.report()
}

// save writes all changes that the state file does not have. A change that cannot be written is written with the next
// one.
func (q *Quarantine) save(ctx context.Context) {
	q.saving.Lock()
	defer q.saving.Unlock()
	q.saveLocked(ctx)
}

// trySave is save for handlers, which must not wait for another save: that one may wait for the disk.
func (q *Quarantine) trySave(ctx context.Context) {
	if q.saving.TryLock() {
		defer q.saving.Unlock()
		q.saveLocked(ctx)
	}
}

func (q *Quarantine) saveLocked(ctx context.Context) {
	q.mu.Lock()
	written := q.dirty
	q.dirty = make(map[string]func() any)
	q.mu.Unlock()
	var saved []eventloop.Saved
	for key, value := range written { // without the lock, which the values take
		saved = append(saved, eventloop.Saved{Bucket: statefile.BucketQuarantine, Key: key, Value: value()})
	}
	if len(saved) == 0 {
		return
	}
	if err := q.saver.Save(ctx, saved); err != nil {
		q.log.Warn("quarantine not saved", "err", err)
		q.mu.Lock()
		maps.Copy(q.dirty, written)
		q.mu.Unlock()
	}
}

// IsDurable reports whether the state file has all changes.
func (q *Quarantine) IsDurable() bool {
	q.saving.Lock()
	defer q.saving.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.dirty) == 0
}

// report sets the condition by which operators see quarantined attachments.
func (q *Quarantine) report() {
	var names []string
	for _, s := range q.All() {
		if s.State == stateQuarantined {
			names = append(names, s.name())
		}
	}
	message := ""
	if len(names) > 0 {
		message = fmt.Sprintf("withheld from the dataplane: %s; weftctl quarantine list says why",
			strings.Join(names, ", "))
	}
	q.health.Set(health.Quarantine, len(names) == 0, message)
}

// ReasonOf is why an attachment is not served; nil if it is not quarantined.
func (q *Quarantine) ReasonOf(key pod.Key) error {
	s, ok := q.find(key)
	if !ok || s.State != stateQuarantined {
		return nil
	}
	return fmt.Errorf("quarantined since %s: %s; weftctl quarantine release %s connects it again",
		s.Since.Format(time.RFC3339), s.Reason, cmp.Or(s.Pod.String(), s.Key.ContainerID))
}

// Taken lists, in one line, the attachments that have addresses which other nodes own.
func (q *Quarantine) Taken() string {
	var texts []string
	for _, s := range q.All() {
		if s.Taken {
			texts = append(texts, s.name()+": "+s.Reason)
		}
	}
	if more := len(texts) - mostListed; more > 0 {
		texts = append(texts[:mostListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// named are the quarantined attachments of a pod, namespace/name, or of a container. An attachment with an address of
// another node cannot be released: two pods would have the address.
func (q *Quarantine) named(name string) ([]Suspicion, error) {
	found := slices.DeleteFunc(q.All(), func(s Suspicion) bool {
		return s.State != stateQuarantined || name == "" ||
			s.Pod.String() != name && !strings.HasPrefix(s.Key.ContainerID, name)
	})
	if len(found) == 0 {
		return nil, errors.New("no attachment of " + name +
			" is quarantined; weftctl quarantine list shows those that are")
	}
	if i := slices.IndexFunc(found, func(s Suspicion) bool { return s.Taken }); i >= 0 {
		return nil, fmt.Errorf("%s is not released: %s", found[i].name(), found[i].Reason)
	}
	return found, nil
}
