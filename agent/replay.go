package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

const (
	// settling is how long after a replay a crash of the dataplane is still attributed to it, because a packet or a timer of the
	// dataplane may cause the crash.
	settling = 500 * time.Millisecond
	// lateCrashes is the number of consecutive crashes, each soon after a replay, that make all replayed attachments suspects. Each
	// suspect is then watched alone for the settling time.
	lateCrashes = 2
)

// replayer resyncs a dataplane after each reconnection:
//
//	connected --> blame --> all but suspects --> suspect 1 --> suspect 2 ... --> ready
//	    ^                        |                   |             |               |
//	    |<--------- the dataplane dies, then or within the settling time ----------|
//
// blame attributes the last crash: during a replay of several attachments to those with operations in progress; soon after a replay, if it
// repeats, to all with created objects; in a replay of one attachment to that one. A dataplane that is killed at random moments rarely
// ends twice in a row because of the same attachment.
type replayer struct {
	agent *Agent

	mu    sync.Mutex  // one replay at a time
	conn  *connection // of the last replay; nil before the first
	since uint64      // number of the scheduler's last record before the last replay
	alone *pod.Key    // the attachment that the last replay replayed alone at its end; nil: several
	ended time.Time   // when the last replay ended; zero: it did not
	late  int         // crashes in a row that came soon after a replay
}

// first is the replay at the start of the agent, after which the desired state is complete.
func (r *replayer) first(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(r.agent.dataplane.connection())
	_, err := r.agent.loop.Do(ctx, eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"})
	return errors.Join(err, r.replaySuspects(ctx))
}

// replay runs for each connection after the first.
func (r *replayer) replay(ctx context.Context, c *connection) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.agent
	r.blame(ctx)
	r.begin(c)
	err := r.withhold(ctx, a.quarantine.keys(), "dataplane connected again")
	_, resyncErr := a.loop.Do(ctx, eventloop.Resynchronize{Kind: eventloop.Downstream, Reason: "dataplane connected again"})
	return errors.Join(err, resyncErr, r.replaySuspects(ctx))
}

// begin records the begin of a replay over the connection.
func (r *replayer) begin(c *connection) {
	r.conn, r.alone, r.ended = c, nil, time.Time{}
	r.mark()
}

// mark records that the scheduler's next transactions belong to the replay.
func (r *replayer) mark() {
	for rec := range r.agent.scheduler.Log(0) {
		r.since = max(r.since, rec.Seq)
	}
}

// unlessReplaying calls f, and prevents replays meanwhile. It does not call f if the dataplane is away or not replayed yet: the objects
// of f would be created outside of the replay, which attributes crashes.
func (r *replayer) unlessReplaying(f func()) bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	if r.conn == nil || r.conn.isLost() || r.conn != r.agent.dataplane.connection() {
		return false
	}
	f()
	return true
}

// replaySuspects replays the suspects one at a time, until the dataplane ends.
func (r *replayer) replaySuspects(ctx context.Context) error {
	q := r.agent.quarantine
	defer func() { r.ended = time.Now() }()
	for _, s := range q.suspects() {
		if r.conn.isLost() || ctx.Err() != nil {
			return ctx.Err()
		}
		r.alone = &s.Key
		r.agent.health.Set(health.Dataplane, false, "connected again, replaying "+s.name()+" alone: the dataplane died of the replay before")
		others := slices.DeleteFunc(q.keys(), func(k pod.Key) bool { return k == s.Key })
		if err := r.withhold(ctx, others, "replay "+s.name()+" alone"); err != nil && !r.conn.isLost() {
			r.agent.log.Warn("replay left something to repair", "pod", s.Pod.String(), "container", s.Key.ContainerID, "err", err)
		}
		if !r.survives(ctx) {
			return ctx.Err()
		}
		q.clear(ctx, s.Key)
		r.alone = nil
	}
	return nil
}

// survives waits until the dataplane answers after the replay of a suspect, and watches the suspect if crashes came late.
func (r *replayer) survives(ctx context.Context) bool {
	if r.late >= lateCrashes {
		timer := time.NewTimer(settling)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.conn.ended:
		case <-ctx.Done():
		}
	}
	return r.agent.dataplane.client.Ping(ctx) == nil && !r.conn.isLost() && ctx.Err() == nil
}

// withhold withholds the objects of exactly these attachments from the dataplane.
func (r *replayer) withhold(ctx context.Context, keys []pod.Key, reason string) error {
	if !r.agent.network.Pods.WithholdsOthers(keys) {
		return nil
	}
	_, err := r.agent.loop.Do(ctx, &pod.WithholdPods{Keys: keys, Reason: reason})
	return err
}

// blame attributes the end of the last connection.
func (r *replayer) blame(ctx context.Context) {
	if r.conn == nil || !r.conn.isLost() {
		return
	}
	during := r.ended.IsZero() || !r.conn.lostAt.After(r.ended)
	switch {
	case !during && r.conn.lostAt.Sub(r.ended) > settling:
		r.late = 0
		r.acquit(ctx, nil)
	case r.alone != nil:
		r.acquit(ctx, r.alone)
		if at, ok := r.agent.pods.Attachment(*r.alone); ok {
			r.strike(ctx, &at)
		}
	case during:
		r.acquit(ctx, nil)
		r.suspect(ctx, func(flying bool) bool { return flying })
	default:
		r.acquit(ctx, nil)
		if r.late++; r.late >= lateCrashes {
			r.suspect(ctx, func(bool) bool { return true })
		}
	}
}

// acquit resets the crashes of all suspects but one.
func (r *replayer) acquit(ctx context.Context, but *pod.Key) {
	for _, s := range r.agent.quarantine.suspects() {
		if s.Crashes > 0 && (but == nil || s.Key != *but) {
			s.Crashes = 0
			r.agent.quarantine.put(ctx, s)
		}
	}
}

// suspect makes suspects of the attachments of the last replay; those with operations in progress are flying.
func (r *replayer) suspect(ctx context.Context, isSuspect func(flying bool) bool) {
	made := r.made()
	var changed []suspicion
	for _, at := range r.agent.pods.Attachments() {
		flying, was := made[at.Key]
		if _, known := r.agent.quarantine.find(at.Key); was && !known && isSuspect(flying) {
			changed = append(changed, suspicion{
				Key: at.Key, Pod: at.Pod, State: stateSuspect, Flying: flying, Since: time.Now().UTC(),
				Reason: "the dataplane died while it was replayed with others",
			})
		}
	}
	if len(changed) > 0 {
		r.agent.log.Warn("dataplane died of a replay, suspects are replayed one at a time", "suspects", len(changed))
		r.agent.quarantine.put(ctx, changed...)
	}
}

// strike counts a crash with only one suspect.
func (r *replayer) strike(ctx context.Context, at *pod.Attachment) {
	s, known := r.agent.quarantine.find(at.Key)
	if !known {
		s = suspicion{Key: at.Key, Pod: at.Pod, State: stateSuspect, Since: time.Now().UTC()}
	}
	s.Crashes++
	s.Reason = fmt.Sprintf("the dataplane %s died %d times while this attachment was replayed alone", r.conn.version, s.Crashes)
	if s.Crashes >= fatalReplays {
		s.State, s.Since = stateQuarantined, time.Now().UTC()
	}
	r.agent.quarantine.put(ctx, s)
}

// made returns the attachments with objects of the last replay; true: an operation was in progress when the dataplane ended.
func (r *replayer) made() map[pod.Key]bool {
	owners := make(map[string]pod.Key)
	for _, at := range r.agent.pods.Attachments() {
		for _, key := range r.agent.objects(&at) {
			if wire.IsDataplane(key) {
				owners[key] = at.Key
			}
		}
	}
	made := make(map[pod.Key]bool)
	for rec := range r.agent.scheduler.Log(r.since) {
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
	return op.Verb != kvscheduler.Delete.String() && op.Outcome != "skipped" && op.Outcome != kvscheduler.NotApplied.String()
}

// release replays quarantined attachments, each alone.
func (r *replayer) release(ctx context.Context, name string) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.agent.quarantine
	found, err := q.named(name)
	if err != nil {
		return 0, err
	}
	for _, s := range found {
		q.clear(ctx, s.Key)
	}
	if r.alone = nil; len(found) == 1 {
		r.alone = &found[0].Key
	}
	err = r.withhold(ctx, q.keys(), "release "+found[0].name()+" from quarantine")
	r.ended = time.Now()
	return len(found), err
}
