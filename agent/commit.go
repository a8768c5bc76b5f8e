package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
)

// Sources of desired values in the scheduler.
const (
	ownSource      = "weft"
	externalSource = "external"
)

// committer turns the changes of the event loop into transactions of the scheduler. The two packages do not import each
// other.
type committer struct {
	scheduler *kvscheduler.Scheduler

	// keepUnknown forbids pruning: after the loss of the state file an undesired object may belong to a running pod. It
	// is set before the first resync.
	keepUnknown bool

	client *vpp.Client // of the dataplane

	// called after each rebuild of the desired values: nil, or why it was refused as a whole
	onRefused func(error)
	onRepair  func(*kvscheduler.Record) // called after each resync with the machine but the first
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

// apply commits the values of Weft, then the external configuration as a source of its own. Failures of the second
// commit do not affect the first.
func (c *committer) apply(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	if given := withoutValue(ch.External); len(given) > 0 && ch.Resync == eventloop.None {
		// A key has one source: external configuration loses it first. If that fails, the commit is refused.
		_, _ = c.commit(ctx, externalSource, ch, given)
	}
	out, err := c.commit(ctx, ownSource, ch, ch.Set)
	if err != nil && ch.Atomic || len(ch.External) == 0 && ch.Resync == eventloop.None {
		return out, err
	}
	external := c.commitExternal(ctx, ch)
	out.Transactions = append(out.Transactions, external.Transactions...)
	out.Operations = append(out.Operations, external.Operations...)
	out.Refused = external.Refused
	return out, err
}

// commitExternal commits the values of external configuration; failures are in the records of the transactions.
func (c *committer) commitExternal(ctx context.Context, ch eventloop.Change) eventloop.Outcome {
	var out eventloop.Outcome
	out.Refused = submitExternal(ch, ch.External, func(ch eventloop.Change, set []eventloop.Setting) error {
		made, err := c.commit(ctx, externalSource, ch, set)
		out.Transactions = append(out.Transactions, made.Transactions...)
		out.Operations = append(out.Operations, made.Operations...)
		return err
	})
	return out
}

// submitExternal submits values of external configuration together, and returns the refused keys with the reasons. The
// scheduler refuses a whole transaction for one value with a dependency cycle, or with the key of another source's
// object. Then the values are submitted one by one, so that only such a value is refused.
func submitExternal(
	ch eventloop.Change, values []eventloop.Setting, submit func(eventloop.Change, []eventloop.Setting) error,
) (refused map[string]string) {
	if !isRefusal(submit(ch, values)) {
		return nil // another failure concerns single values
	}
	one := ch
	one.Resync = eventloop.None
	refused = make(map[string]string)
	var accepted []eventloop.Setting
	for _, s := range values {
		if err := submit(one, []eventloop.Setting{s}); isRefusal(err) {
			refused[s.Key] = err.Error()
			continue
		}
		accepted = append(accepted, s)
	}
	if ch.Resync != eventloop.None { // values is complete: objects that it does not name are removed
		_ = submit(ch, accepted)
	}
	return refused
}

// errNoObject rejects a value without an object of the scheduler.
var errNoObject = errors.New("value")

// isRefusal reports whether a transaction was refused as a whole.
func isRefusal(err error) bool {
	return errors.Is(err, kvscheduler.ErrConflict) || errors.Is(err, kvscheduler.ErrCycle) ||
		errors.Is(err, kvscheduler.ErrUnknownKind) || errors.Is(err, errNoObject)
}

// rebuild replaces all desired values by the change, and resyncs with the machine.
func (c *committer) rebuild(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	_ = c.stage(ctx, externalSource, ch, nil) // Weft may have a key now that external configuration had before
	invalid := c.stage(ctx, ownSource, ch, ch.Set)
	if isRefusal(invalid) {
		c.onRefused(invalid)
		return eventloop.Outcome{}, invalid
	}
	c.onRefused(nil)
	refused := submitExternal(ch, ch.External, func(ch eventloop.Change, set []eventloop.Setting) error {
		return c.stage(ctx, externalSource, ch, set)
	})
	if !c.keepUnknown {
		// All sources are complete now, so orphans may be pruned.
		c.scheduler.Ready(ownSource)
		c.scheduler.Ready(externalSource)
	}
	out, err := c.resync(ctx, ch)
	out.Refused = refused
	return out, errors.Join(invalid, err)
}

func (c *committer) stage(ctx context.Context, source string, ch eventloop.Change, set []eventloop.Setting) error {
	txn, err := c.transaction(source, ch, set)
	if err != nil {
		return err
	}
	return c.scheduler.Stage(ctx, txn)
}

func (c *committer) resync(ctx context.Context, ch eventloop.Change) (eventloop.Outcome, error) {
	opt := kvscheduler.ResyncOpt{Label: ch.Label, Event: ch.Event, DryRun: ch.Scope.DryRun, Force: ch.Scope.Force}
	if len(ch.Scope.Keys) == 0 {
		opt.Reopen = c.client.Hold() // everything is read back
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

func (c *committer) commit(
	ctx context.Context, source string, ch eventloop.Change, set []eventloop.Setting,
) (eventloop.Outcome, error) {
	txn, err := c.transaction(source, ch, set)
	if err != nil {
		return eventloop.Outcome{Undone: true}, err
	}
	rec, err := c.scheduler.Commit(ctx, txn)
	return outcome(rec, err), c.explain(ch, err)
}

// explain turns the failure of an atomic change into an error that the runtime retries, if the dataplane ended.
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
		// A pod with pending objects must not start.
		txn.Mode = kvscheduler.Atomic
		txn.NoPending = true
		txn.KeepOthers = true // nor may it cost another pod its objects
	}
	for _, s := range set {
		o, err := c.scheduler.Object(s.Key, s.Value)
		if err != nil {
			return txn, fmt.Errorf("%w of %s: %w", errNoObject, s.Key, err)
		}
		txn.Set = append(txn.Set, o)
	}
	return txn, nil
}

// Drift lists the operations that a resync with the machine would do, and the objects that wait although they were
// applied, one line each; none if the machine is as desired.
func (c *committer) Drift(ctx context.Context) ([]string, error) {
	rec, err := c.scheduler.Resync(ctx, kvscheduler.ResyncOpt{DryRun: true})
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, op := range rec.Ops {
		lines = append(lines, op.Verb+" "+op.Ref+" ("+op.Why+")")
	}
	for _, w := range c.scheduler.LostObjects() {
		lines = append(lines, w.Ref+" was applied, and waits for "+strings.Join(w.Missing, ", "))
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
			out.Operations = append(out.Operations, op.Ref)
		}
	}
	for _, p := range rec.Pending {
		out.Pending = append(out.Pending, p.Ref)
	}
	out.TakenDown = rec.TakenDown()
	if errors.Is(err, kvscheduler.ErrIncomplete) {
		out.Stuck = stuck(rec)
	}
	return out
}

// stuck lists the objects that the rollback could not restore.
func stuck(rec *kvscheduler.Record) []string {
	var keys []string
	for _, op := range rec.Ops {
		if op.Why == "undo" && op.Err != "" {
			keys = append(keys, op.Ref)
		}
	}
	return keys
}
