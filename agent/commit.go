package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
)

// Sources of desired values, as the scheduler knows them.
const (
	ownSource      = "weft"
	externalSource = "external"
)

// committer is the bridge between two rooms that do not know each other: what the event loop wants committed becomes
// transactions of the scheduler.
type committer struct {
	scheduler *kvscheduler.Scheduler

	// keepUnknown forbids to prune: after the state file was lost, what nobody desires may belong to a running pod. It is
	// settled before the first resync.
	keepUnknown bool

	client *vpp.Client // of the dataplane

	onRepair func(*kvscheduler.Record) // told of each look at the machine that an event asked for, but the first
}

// Commit applies one event's change: an atomic one whole or not at all.
func (c *committer) Commit(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	switch ch.Resync {
	case eventloop.Downstream:
		return c.resync(ctx, ch)
	case eventloop.Full:
		return c.rebuild(ctx, ch)
	default:
		return c.apply(ctx, ch)
	}
}

// apply commits ours, and then, as a source of its own that never fails ours, what only external configuration wants.
func (c *committer) apply(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	if given := withoutValue(ch.External); len(given) > 0 && ch.Resync == eventloop.None {
		// A key has one owner: what becomes ours is given up first. A failure shows when ours is refused for it.
		_, _ = c.commit(ctx, externalSource, ch, given)
	}
	out, err := c.commit(ctx, ownSource, ch, ch.Set)
	if err != nil && ch.Atomic || len(ch.External) == 0 && ch.Resync == eventloop.None {
		return out, err
	}
	external, _ := c.commit(ctx, externalSource, ch, ch.External) // its failures are in its own record
	out.Transactions = append(out.Transactions, external.Transactions...)
	out.Operations += external.Operations
	return out, err
}

// rebuild makes the change all that is desired, reads everything back, and brings the one to the other.
func (c *committer) rebuild(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	for source, set := range map[string][]eventloop.Setting{ownSource: ch.Set, externalSource: ch.External} {
		txn, err := c.transaction(source, ch, set)
		if err == nil {
			err = c.scheduler.Stage(ctx, txn)
		}
		if err != nil && source == ownSource {
			return eventloop.Outcome{}, err
		}
		if !c.keepUnknown {
			// All that the source desires is known now, so that what nobody desires may go.
			c.scheduler.Ready(source)
		}
	}
	return c.resync(ctx, ch)
}

func (c *committer) resync(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	opt := kvscheduler.ResyncOpt{Label: ch.Label, Event: ch.Event, DryRun: ch.Scope.DryRun}
	if len(ch.Scope.Keys) == 0 {
		opt.Reopen = c.client.Hold() // all is read back
	}
	for _, key := range ch.Scope.Keys {
		ref, err := kvscheduler.ParseRef(key)
		if err != nil {
			return eventloop.Outcome{}, fmt.Errorf("resync: %w", err)
		}
		opt.Refs = append(opt.Refs, ref)
	}
	rec, err := c.scheduler.Resync(ctx, opt)
	if rec != nil && ch.Resync == eventloop.Downstream {
		c.onRepair(rec)
	}
	return outcome(rec, err), err
}

func (c *committer) commit(ctx context.Context, source string, ch eventloop.Change, set []eventloop.Setting) (eventloop.Outcome, error) {
	txn, err := c.transaction(source, ch, set)
	if err != nil {
		return eventloop.Outcome{Undone: true}, err
	}
	rec, err := c.scheduler.Commit(ctx, txn)
	return outcome(rec, err), c.explain(ch, err)
}

// explain makes the failure of an atomic change of a dataplane that died one that the runtime repeats.
func (c *committer) explain(ch eventloop.Change, err error) error {
	if err == nil || !ch.Atomic {
		return err
	}
	down := c.client.Health()
	if down == nil && !errors.Is(err, kvscheduler.ErrDown) {
		return err
	}
	return pod.Errorf(pod.CodeTryAgain, "%s: the dataplane was lost meanwhile: try again: %w", ch.Label, err)
}

func (c *committer) transaction(source string, ch eventloop.Change, set []eventloop.Setting) (kvscheduler.Txn, error) {
	txn := kvscheduler.Txn{
		Source:  source,
		Label:   ch.Label,
		Event:   ch.Event,
		Replace: ch.Resync != eventloop.None,
	}
	if ch.Atomic && source == ownSource {
		// A pod that would have to wait for something must not start.
		txn.Mode, txn.NoPending = kvscheduler.Atomic, true
	}
	for _, s := range set {
		o, err := c.scheduler.Object(s.Key, s.Value)
		if err != nil {
			return txn, fmt.Errorf("value of %s: %w", s.Key, err)
		}
		txn.Set = append(txn.Set, o)
	}
	return txn, nil
}

// Drift is what a downstream resync would do, one line an operation; nothing when the machine is as desired.
func (c *committer) Drift(ctx context.Context) ([]string, error) {
	rec, err := c.scheduler.Resync(ctx, kvscheduler.ResyncOpt{DryRun: true})
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(rec.Ops))
	for i, op := range rec.Ops {
		lines[i] = op.Verb + " " + op.Ref + " (" + op.Why + ")"
	}
	return lines, nil
}

func withoutValue(set []eventloop.Setting) []eventloop.Setting {
	var given []eventloop.Setting
	for _, s := range set {
		if s.Value == nil {
			given = append(given, s)
		}
	}
	return given
}

func outcome(rec *kvscheduler.Record, err error) eventloop.Outcome {
	if rec == nil {
		// Refused, or given up, before any backend call.
		return eventloop.Outcome{Undone: err != nil}
	}
	out := eventloop.Outcome{Transactions: []uint64{rec.Seq}, Undone: rec.Undone}
	for _, op := range rec.Ops {
		if op.Batch > 0 {
			out.Operations++
		}
	}
	for _, p := range rec.Pending {
		out.Pending = append(out.Pending, p.Ref)
	}
	if errors.Is(err, kvscheduler.ErrIncomplete) {
		out.Stuck = stuck(rec)
	}
	return out
}

// stuck lists what the way back could not put back.
func stuck(rec *kvscheduler.Record) []string {
	var keys []string
	for _, op := range rec.Ops {
		if op.Why == "undo" && op.Err != "" {
			keys = append(keys, op.Ref)
		}
	}
	return keys
}
