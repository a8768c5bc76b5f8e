// Package recovery brings a node back after a loss: it replays a dataplane that came back, quarantines attachments that
// the dataplane dies of, and rebuilds a lost state file from the machine.
package recovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/southbound"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

const (
	// settling is how long after a replay a crash of the dataplane is still attributed to it, because a packet or a
	// timer of the dataplane may cause the crash.
	settling = 500 * time.Millisecond
	// lateCrashes is the number of consecutive crashes, each soon after a replay, that make all replayed attachments
	// suspects. Each suspect is then watched alone for the settling time.
	lateCrashes = 2
)

// Dataplane is the dataplane that is replayed.
type Dataplane interface {
	// Connection returns the last connection.
	Connection() *southbound.Connection
	// Ping returns nil if the dataplane answers.
	Ping(ctx context.Context) error
}

// Config has the dependencies of a replayer.
type Config struct {
	Dataplane  Dataplane
	Loop       *eventloop.Loop
	Scheduler  *kvscheduler.Scheduler
	Pods       *podmanager.Manager
	Wiring     *attach.Pods
	Objects    func(*pod.Attachment) []string // that an attachment needs
	Quarantine *Quarantine
	Health     *health.Conditions
	Log        *slog.Logger
}

// Replayer resyncs a dataplane after each reconnection:
//
//	connected --> attributeCrash --> all but suspects --> suspect 1 --> suspect 2 ... --> ready
//	    ^                                 |                   |             |               |
//	    |<------------- the dataplane dies, then or within the settling time ---------------|
//
// attributeCrash attributes the last crash: during a replay of several attachments to those with operations in
// progress; soon after a replay, if it repeats, to all with created objects; in a replay of one attachment to that one.
// A dataplane that is killed at random moments rarely ends twice in a row because of the same attachment.
type Replayer struct {
	Config

	mu    sync.Mutex             // one replay at a time
	conn  *southbound.Connection // of the last replay; nil before the first
	since uint64                 // number of the scheduler's last record before the last replay
	alone *pod.Key               // the attachment that the last replay replayed alone at its end; nil: several
	ended time.Time              // when the last replay ended; zero: it did not
	late  int                    // crashes in a row that came soon after a replay
}

// First is the replay at the start of the agent, after which the desired state is complete.
func (r *Replayer) First(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(r.Dataplane.Connection())
	_, err := r.Loop.Do(ctx, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"})
	return errors.Join(err, r.replaySuspects(ctx))
}

// Replay runs for each connection after the first.
func (r *Replayer) Replay(ctx context.Context, c *southbound.Connection) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attributeCrash(ctx)
	r.begin(c)
	err := r.withhold(ctx, r.Quarantine.Keys(), "dataplane connected again")
	_, resyncErr := r.Loop.Do(ctx, eventloop.Resynchronize{
		Kind:   eventloop.Downstream,
		Reason: "dataplane connected again",
	})
	r.Quarantine.attribute(ctx) // an ADD that failed with the last dataplane has ended: the resync came after it
	return errors.Join(err, resyncErr, r.replaySuspects(ctx))
}

// begin records the begin of a replay over the connection.
func (r *Replayer) begin(c *southbound.Connection) {
	r.conn = c
	r.alone = nil
	r.ended = time.Time{}
	r.mark()
}

// mark records that the scheduler's next transactions belong to the replay.
func (r *Replayer) mark() {
	for rec := range r.Scheduler.Log(0) {
		r.since = max(r.since, rec.Seq)
	}
}

// Unless calls f, and prevents replays meanwhile. It does not call f if the dataplane is away or not replayed yet: the
// objects of f would be created outside of the replay, which attributes crashes.
func (r *Replayer) Unless(f func()) bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	if r.conn == nil || r.conn.IsLost() || r.conn != r.Dataplane.Connection() {
		return false
	}
	f()
	return true
}

// replaySuspects replays the suspects one at a time, until the dataplane ends. The agent is not ready meanwhile. If
// crashes came late, the dataplane may die of the packets or timers of a suspect, so each is watched.
func (r *Replayer) replaySuspects(ctx context.Context) error {
	var watched time.Duration
	if r.late >= lateCrashes {
		watched = settling
	}
	return r.replayAlone(ctx, watched, func(s Suspicion) {
		r.Health.Set(health.Dataplane, false,
			"connected again, replaying "+s.name()+" alone: the dataplane died of the replay before")
	})
}

// replayAlone replays the suspects one at a time, until the dataplane ends. It calls announce before, and watches each
// for a time.
func (r *Replayer) replayAlone(ctx context.Context, watched time.Duration, announce func(Suspicion)) error {
	q := r.Quarantine
	defer func() { r.ended = time.Now() }()
	for _, s := range q.suspects() {
		if r.conn.IsLost() || ctx.Err() != nil {
			return ctx.Err()
		}
		r.alone = &s.Key
		announce(s)
		others := slices.DeleteFunc(q.Keys(), func(k pod.Key) bool { return k == s.Key })
		if err := r.withhold(ctx, others, "replay "+s.name()+" alone"); err != nil && !r.conn.IsLost() {
			r.Log.Warn("replay incomplete, repairing", "pod", s.Pod.String(), "container", s.Key.ContainerID,
				"err", err)
		}
		if !r.survives(ctx, watched) {
			return ctx.Err()
		}
		q.clear(ctx, s.Key)
		r.alone = nil
	}
	return nil
}

// survives waits until the dataplane answers after the replay of a suspect, and watches the suspect.
func (r *Replayer) survives(ctx context.Context, watched time.Duration) bool {
	if watched > 0 {
		timer := time.NewTimer(watched)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.conn.Ended:
		case <-ctx.Done():
		}
	}
	return r.Dataplane.Ping(ctx) == nil && !r.conn.IsLost() && ctx.Err() == nil
}

// withhold withholds the objects of exactly these attachments from the dataplane.
func (r *Replayer) withhold(ctx context.Context, keys []pod.Key, reason string) error {
	if !r.Wiring.WithholdsOthers(keys) {
		return nil
	}
	_, err := r.Loop.Do(ctx, &pod.WithholdPods{Keys: keys, Reason: reason})
	return err
}

// attributeCrash attributes the end of the last connection.
func (r *Replayer) attributeCrash(ctx context.Context) {
	if r.conn == nil || !r.conn.IsLost() {
		return
	}
	during := r.ended.IsZero() || !r.conn.LostAt.After(r.ended)
	switch {
	case !during && r.conn.LostAt.Sub(r.ended) > settling:
		r.late = 0
		r.clearCrashes(ctx, nil)
	case r.alone != nil:
		r.clearCrashes(ctx, r.alone)
		if at, ok := r.Pods.Attachment(*r.alone); ok {
			r.countCrash(ctx, &at)
		}
	case during:
		r.clearCrashes(ctx, nil)
		r.suspect(ctx, func(flying bool) bool { return flying })
	default:
		r.clearCrashes(ctx, nil)
		if r.late++; r.late >= lateCrashes {
			r.suspect(ctx, func(bool) bool { return true })
		}
	}
}

// clearCrashes resets the crash counters of all suspects but one.
func (r *Replayer) clearCrashes(ctx context.Context, but *pod.Key) {
	for _, s := range r.Quarantine.suspects() {
		if s.Crashes > 0 && (but == nil || s.Key != *but) {
			s.Crashes = 0
			r.Quarantine.put(ctx, s)
		}
	}
}

// suspect makes suspects of the attachments of the last replay; those with operations in progress are flying.
func (r *Replayer) suspect(ctx context.Context, isSuspect func(flying bool) bool) {
	made := r.made()
	var changed []Suspicion
	for _, at := range r.Pods.Attachments() {
		flying, was := made[at.Key]
		if _, known := r.Quarantine.find(at.Key); was && !known && isSuspect(flying) {
			changed = append(changed, Suspicion{
				Key: at.Key, Pod: at.Pod, State: stateSuspect, Flying: flying, Since: time.Now().UTC(),
				Reason: "the dataplane crashed while it was replayed with others",
			})
		}
	}
	if len(changed) > 0 {
		r.Log.Warn("dataplane crashed during a replay, replaying suspects one at a time", "suspects", len(changed))
		r.Quarantine.put(ctx, changed...)
	}
}

// countCrash counts a crash with only one suspect.
func (r *Replayer) countCrash(ctx context.Context, at *pod.Attachment) {
	s, known := r.Quarantine.find(at.Key)
	if !known {
		s = Suspicion{Key: at.Key, Pod: at.Pod, State: stateSuspect, Since: time.Now().UTC()}
	}
	s.Crashes++
	s.Reason = fmt.Sprintf("the dataplane %s died %d times while this attachment was replayed alone", r.conn.Version,
		s.Crashes)
	if s.Crashes >= fatalReplays {
		s.State = stateQuarantined
		s.Since = time.Now().UTC()
	}
	r.Quarantine.put(ctx, s)
}

// made returns the attachments with objects of the last replay; true: an operation was in progress when the dataplane
// ended.
func (r *Replayer) made() map[pod.Key]bool {
	owners := make(map[string]pod.Key)
	for _, at := range r.Pods.Attachments() {
		for _, key := range r.Objects(&at) {
			if wire.IsDataplane(key) {
				owners[key] = at.Key
			}
		}
	}
	made := make(map[pod.Key]bool)
	for rec := range r.Scheduler.Log(r.since) {
		for _, op := range rec.Ops {
			if owner, ok := owners[op.Ref]; ok && wasSent(op) {
				made[owner] = made[owner] || op.Err != ""
			}
		}
	}
	return made
}

// wasSent reports whether an operation may have changed the dataplane.
func wasSent(op kvscheduler.OpRecord) bool {
	return op.Verb != kvscheduler.Delete.String() && op.Outcome != "skipped" &&
		op.Outcome != kvscheduler.NotApplied.String()
}

// Release permits the ADDs of a refused pod, and replays quarantined attachments, each alone. One more crash puts an
// attachment back into quarantine. It returns the number of released pods and attachments.
func (r *Replayer) Release(ctx context.Context, name string) (int, error) {
	if released := r.Quarantine.additions.release(name); released > 0 {
		r.Quarantine.save(ctx)
		return released, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.Quarantine
	found, err := q.named(name)
	if err != nil {
		return 0, err
	}
	for i := range found {
		found[i].State = stateSuspect
		found[i].Crashes = fatalReplays - 1
		found[i].Reason = "released by an operator, not replayed yet"
	}
	q.put(ctx, found...)
	if r.conn == nil || r.conn.IsLost() {
		return len(found), nil // the next replay makes them, one at a time
	}
	err = r.replayAlone(ctx, settling, func(Suspicion) {})
	left := slices.DeleteFunc(found, func(s Suspicion) bool { _, is := q.find(s.Key); return !is })
	if err == nil && len(left) > 0 {
		err = fmt.Errorf(
			"the dataplane died while %s was replayed alone, which decides about it when the dataplane is back",
			left[0].name())
	}
	return len(found) - len(left), err
}

// Taken is a block that another node owns while pods of this node use its addresses. It happens if the Node object of
// this node was missing for longer than the grace period after which the controller frees its blocks.
type Taken struct {
	Network string
	Prefix  netip.Prefix
	By      string // the node that owns it now
}

// Isolate quarantines the attachments that use addresses of a taken block. Deleting their pods ends the quarantine.
func (r *Replayer) Isolate(ctx context.Context, t Taken) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.Quarantine
	found := r.Exposed(t)
	q.put(ctx, found...)
	if err := r.withhold(ctx, q.Keys(),
		fmt.Sprintf("isolate %d pods whose addresses node %s owns", len(found), t.By)); err != nil {
		r.Log.Error("pods whose addresses another node owns are still connected", "block", t.Prefix, "node", t.By,
			"err", err)
	}
}

// Exposed returns a quarantine entry for each attachment that uses the block and is not quarantined yet.
func (r *Replayer) Exposed(t Taken) (found []Suspicion) {
	for _, at := range r.Pods.Attachments() {
		address := t.addressOf(&at)
		if s, known := r.Quarantine.find(at.Key); !address.IsValid() || known && s.State == stateQuarantined {
			continue
		}
		found = append(found, Suspicion{
			Key: at.Key, Pod: at.Pod, State: stateQuarantined, Taken: true, Since: time.Now().UTC(),
			Reason: fmt.Sprintf("node %[3]s owns its address %[1]s (block %[2]s) now; delete the pod", address,
				t.Prefix, t.By),
		})
	}
	return found
}

// addressOf returns the attachment's address from the block, or the zero address.
func (t Taken) addressOf(at *pod.Attachment) netip.Addr {
	for _, in := range at.Interfaces {
		if in.Network != t.Network {
			continue
		}
		if i := slices.IndexFunc(in.Addresses, func(p netip.Prefix) bool {
			return t.Prefix.Contains(p.Addr())
		}); i >= 0 {
			return in.Addresses[i].Addr()
		}
	}
	return netip.Addr{}
}
