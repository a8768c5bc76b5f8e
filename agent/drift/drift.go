// Package drift finds and repairs objects that another program changed.
package drift

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/dataplane/linux"
	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/retry"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/wire"
)

const (
	// driftSettle is the time between a notification and the check, because one cause makes several notifications.
	driftSettle = 200 * time.Millisecond
	// driftPause is the shortest time between two checks of an object that keeps drifting. It doubles with each check,
	// up to the period of the audit, so that a pod that sets its links down all the time does not keep the agent busy.
	driftPause = time.Second
)

// Config has the dependencies of a Monitor.
type Config struct {
	Scheduler *kvscheduler.Scheduler
	Loop      *eventloop.Loop
	Replays   interface {
		// Unless calls f, and prevents replays of the dataplane meanwhile. It does not call f during a replay.
		Unless(f func()) bool
	}
	Owners  *owners.Index
	Log     *slog.Logger
	Period  time.Duration // of the audit
	Repairs bool          // else drift is reported only
}

// Monitor finds objects that are not as desired although no operation failed: another program changed them. It checks
// an object
//
//   - soon after a notification of the kernel or the dataplane that its link or interface was deleted or set down, and
//   - in the audit, which reads each kind once in a period, one after another.
//
// A check is a dry run of a resync. Drift is repaired by an event of its own, or reported. The monitor does not check
// while the dataplane is away: the replay compares and repairs everything.
type Monitor struct {
	Config

	mu        sync.Mutex
	changes   map[linux.Notification]bool // of the kernel, to be checked; a pod can make very many of one kind
	disturbed map[kvscheduler.Ref]bool    // to be checked
	wake      chan struct{}               // holds a token when something is to be checked
	audits    chan auditCall

	// Only run uses what follows.
	known    map[string]bool // drift that was reported or could not be repaired, by key
	pauses   map[kvscheduler.Ref]checkPause
	since    map[kvscheduler.Ref]time.Time // by link in a pod, when something on it was first seen to differ
	failures map[string]string             // by cause, why the last check failed
}

// checkPause is a time in which notifications about an object cause no check.
type checkPause struct {
	until    time.Time
	length   time.Duration
	isQueued bool // the object is checked at the end
}

// New returns a monitor. Run checks.
func New(c Config) *Monitor {
	return &Monitor{
		Config:    c,
		changes:   make(map[linux.Notification]bool),
		disturbed: make(map[kvscheduler.Ref]bool),
		wake:      make(chan struct{}, 1),
		audits:    make(chan auditCall),
		known:     make(map[string]bool),
		pauses:    make(map[kvscheduler.Ref]checkPause),
		failures:  make(map[string]string),
		since:     make(map[kvscheduler.Ref]time.Time),
	}
}

// Run checks until ctx ends.
func (d *Monitor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if n, err := linux.Subscribe(); err != nil {
		d.Log.Warn("changes of the kernel are found by the audit only", "period", d.Period, "err", err)
	} else {
		group.Go(func() error { return n.Run(ctx, d.kernelChanged) })
		group.Go(func() error { return d.followNamespaces(ctx, n) })
	}
	group.Go(func() error { return d.followRules(ctx) })
	group.Go(func() error { return d.checks(ctx) })
	return group.Wait()
}

// Pauses before another subscription to changes of nftables.
const (
	minResubscribe = time.Second
	maxResubscribe = time.Minute
)

// followRules follows the nftables tables of Weft. It subscribes again after an error.
func (d *Monitor) followRules(ctx context.Context) error {
	follow := func(ctx context.Context) error {
		return linux.FollowRules(ctx, func() { d.kernelChanged(linux.Notification{Rules: true}) })
	}
	warned := false
	return retry.Keep(ctx, retry.Pauses(minResubscribe, maxResubscribe), follow, func(err error, _ time.Duration) {
		if !warned {
			d.Log.Warn("deleted rules of nftables are found by the audit only, until a subscription succeeds", "period",
				d.Period, "err", err)
		}
		warned = true
	})
}

// followNamespaces subscribes to the kernel's notifications in the namespaces of pods.
func (d *Monitor) followNamespaces(ctx context.Context, n *linux.Subscription) error {
	for ref, status := range d.Scheduler.Watch(ctx, wire.KindNamespace) {
		if status.Phase != kvscheduler.InSync {
			n.Forget(ref.Name)
		} else if err := n.Follow(ref.Name); err != nil && !errors.Is(err, linux.ErrGone) {
			d.Log.Warn("changes in a pod are found by the audit only", "netns", ref.Name, "period", d.Period,
				"err", err)
		}
	}
	return ctx.Err()
}

// checks audits each kind once in a period, one after another, and checks objects that notifications were about.
func (d *Monitor) checks(ctx context.Context) error {
	kinds := wire.Kinds()
	tick := time.NewTicker(d.Period / time.Duration(len(kinds)))
	defer tick.Stop()
	for round := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			kind := kvscheduler.Kind(kinds[round%len(kinds)])
			if d.Replays.Unless(func() {
				d.check(ctx, string(kind), kvscheduler.ResyncOpt{Kinds: []kvscheduler.Kind{kind}})
			}) {
				round++
			}
		case call := <-d.audits:
			result := Audit{Err: errReplay}
			d.Replays.Unless(func() { result = d.audit(ctx) })
			call <- result
		case <-d.wake:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(driftSettle):
			}
			if !d.Replays.Unless(func() { d.checkDisturbed(ctx) }) {
				time.AfterFunc(driftPause, d.nudge)
			}
		}
	}
}

// everything stands for all objects, because notifications were lost.
var everything = kvscheduler.Ref{}

// kernelChanged records a change. It is called for each notification, so it must be fast.
func (d *Monitor) kernelChanged(c linux.Notification) {
	d.mu.Lock()
	d.changes[c] = true
	d.mu.Unlock()
	d.nudge()
}

// takeDisturbed returns the objects to check, and clears the record.
func (d *Monitor) takeDisturbed() map[kvscheduler.Ref]bool {
	d.mu.Lock()
	changes := d.changes
	disturbed := d.disturbed
	d.changes = make(map[linux.Notification]bool)
	d.disturbed = make(map[kvscheduler.Ref]bool)
	d.mu.Unlock()
	if len(changes) == 0 {
		return disturbed
	}
	view := d.Scheduler.View()
	for _, kind := range []kvscheduler.Kind{wire.KindVeth, wire.KindTapPeer, wire.KindLink, wire.KindVLAN} {
		for name := range view.All(kind) {
			ref := kvscheduler.Ref{Kind: kind, Name: name}
			if v, ok := view.Desired(ref); ok && isChanged(v, changes) {
				disturbed[ref] = true
			}
		}
	}
	for c := range changes {
		switch {
		case c.Lost:
			disturbed[everything] = true
		case c.Rules:
			disturb(disturbed, view, wire.KindMasquerade, wire.KindTunnelNAT)
		case c.Forwarding:
			disturb(disturbed, view, wire.KindSysctl)
		}
	}
	return disturbed
}

// disturb adds the objects of kinds in the node's own namespace.
func disturb(disturbed map[kvscheduler.Ref]bool, view kvscheduler.View, kinds ...kvscheduler.Kind) {
	for _, kind := range kinds {
		for name := range view.All(kind) {
			ref := kvscheduler.Ref{Kind: kind, Name: name}
			v, _ := view.Desired(ref)
			if setting, is := v.(wire.Sysctl); !is || setting.Namespace == "" {
				disturbed[ref] = true
			}
		}
	}
}

// isChanged reports whether the link of a value changed.
func isChanged(value any, changes map[linux.Notification]bool) bool {
	is := func(namespace, name string) bool {
		return changes[linux.Notification{Namespace: namespace, Link: name}] ||
			namespace != "" && changes[linux.Notification{Namespace: namespace}]
	}
	switch v := value.(type) {
	case wire.Veth:
		return is(v.Namespace, v.Name) || is("", v.HostName)
	case wire.TapPeer:
		return is(v.Namespace, v.Name)
	case wire.Link:
		return is("", v.Name)
	case wire.VLAN:
		return is("", v.Name)
	}
	return false
}

// InterfaceChanged notes the object of an interface of the dataplane.
func (d *Monitor) InterfaceChanged(i vpp.Index) {
	if ref, ok := vpp.InterfaceOf(d.Scheduler.View(), i); ok {
		d.disturb(ref)
	}
}

func (d *Monitor) disturb(ref kvscheduler.Ref) {
	d.mu.Lock()
	d.disturbed[ref] = true
	d.mu.Unlock()
	d.nudge()
}

func (d *Monitor) nudge() {
	select {
	case d.wake <- struct{}{}:
	default: // there is a token
	}
}

// checkDisturbed checks all objects that notifications were about, in one dry run.
func (d *Monitor) checkDisturbed(ctx context.Context) {
	now := time.Now()
	for ref, p := range d.pauses {
		if now.Sub(p.until) > d.Period {
			delete(d.pauses, ref)
		}
	}
	view := d.Scheduler.View()
	var refs []kvscheduler.Ref
	for ref := range d.takeDisturbed() {
		if _, desired := view.Desired(ref); (desired || ref == everything) && !d.isPaused(ref, now) {
			refs = append(refs, ref)
		}
	}
	switch {
	case len(refs) == 0:
	case slices.Contains(refs, everything): // it costs as much as an audit, with or without drift
		d.check(ctx, "all", kvscheduler.ResyncOpt{})
		d.pause(refs...)
	case d.check(ctx, "notified", kvscheduler.ResyncOpt{Refs: refs}):
		d.pause(refs...)
	}
}

// isPaused reports whether the object is in a pause. Then it is checked at the end of the pause.
func (d *Monitor) isPaused(ref kvscheduler.Ref, now time.Time) bool {
	p, known := d.pauses[ref]
	if !known || !now.Before(p.until) {
		return false
	}
	if !p.isQueued {
		time.AfterFunc(p.until.Sub(now), func() { d.disturb(ref) })
		p.isQueued = true
		d.pauses[ref] = p
	}
	return true
}

// pause begins a pause for each object, twice as long as its last pause.
func (d *Monitor) pause(refs ...kvscheduler.Ref) {
	for _, ref := range refs {
		length := min(max(driftPause, 2*d.pauses[ref].length), d.Period)
		d.pauses[ref] = checkPause{until: time.Now().Add(length), length: length}
	}
}

// check compares objects with their desired values, and repairs or reports those that drifted since the last check. It
// reports whether there were any.
func (d *Monitor) check(ctx context.Context, cause string, opt kvscheduler.ResyncOpt) bool {
	found, err := d.compare(ctx, opt)
	if ctx.Err() != nil || errors.Is(err, kvscheduler.ErrStopped) {
		return false
	}
	d.noteFailure(cause, err)
	d.forget(opt.Kinds, found)
	found = d.unfinished(opt, found, time.Now())
	isNew := func(op kvscheduler.OpRecord) bool { return !d.known[op.Ref] }
	if !slices.ContainsFunc(found, isNew) {
		return false
	}
	_ = d.handle(ctx, found) // logged
	return true
}

// compare returns the operations that would remove drift. After an error it may lack some.
func (d *Monitor) compare(ctx context.Context, opt kvscheduler.ResyncOpt) (found []kvscheduler.OpRecord, err error) {
	before := d.Scheduler.View()
	opt.DryRun = true
	rec, err := d.Scheduler.Resync(ctx, opt)
	if rec == nil {
		return nil, err
	}
	for _, op := range rec.Ops {
		if ref, err := kvscheduler.ParseRef(op.Ref); err == nil && !isUnsettled(before, ref) {
			found = append(found, op)
		}
	}
	return found, err
}

// isUnsettled reports whether the scheduler already has an operation to do for an object.
func isUnsettled(view kvscheduler.View, ref kvscheduler.Ref) bool {
	status, _ := view.Status(ref)
	return status.IsLacking() || status.Phase == kvscheduler.Removing
}

// noteFailure logs why a check failed, once.
func (d *Monitor) noteFailure(cause string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != d.failures[cause] {
		d.Log.Warn("check for drift failed", "check", cause, "err", err)
	}
	d.failures[cause] = text
}

// forget drops known drift of audited kinds that is over.
func (d *Monitor) forget(kinds []kvscheduler.Kind, found []kvscheduler.OpRecord) {
	for key := range d.known {
		still := slices.ContainsFunc(found, func(op kvscheduler.OpRecord) bool { return op.Ref == key })
		ref, err := kvscheduler.ParseRef(key)
		if err != nil || !still && slices.Contains(kinds, ref.Kind) {
			delete(d.known, key)
		}
	}
}

// handle repairs drift, or reports it, as an event, and returns the error of the repair.
func (d *Monitor) handle(ctx context.Context, found []kvscheduler.OpRecord) error {
	keys := make([]string, 0, len(found))
	for _, op := range found {
		d.known[op.Ref] = true
		if !slices.Contains(keys, op.Ref) {
			keys = append(keys, op.Ref)
		}
	}
	drift := describeDrift(found, d.Owners.Now())
	label := map[bool]string{true: "drift repaired: ", false: "drift reported: "}[d.Repairs] + drift
	_, err := d.Loop.Do(ctx, eventloop.Resynchronize{
		Kind: eventloop.Downstream, Reason: label, Scope: eventloop.Scope{Keys: keys, DryRun: !d.Repairs},
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		d.Log.Warn("drift is not repaired", "drift", drift, "err", err)
		d.forgetRepaired(keys)
	case !d.Repairs:
		d.Log.Warn("drift is reported, not repaired", "drift", drift, "objects", len(keys))
	default:
		d.Log.Warn("drift repaired", "drift", drift, "objects", len(keys))
		for _, key := range keys {
			delete(d.known, key)
		}
	}
	return err
}

// forgetRepaired drops the known drift of objects that a repair repaired although it failed for others: they may drift
// again.
func (d *Monitor) forgetRepaired(keys []string) {
	view := d.Scheduler.View()
	for _, key := range keys {
		ref, err := kvscheduler.ParseRef(key)
		if status, _ := view.Status(ref); err == nil && status.Phase == kvscheduler.InSync {
			delete(d.known, key)
		}
	}
}

// describeDrift names the object that drifted and its pod, the first in the order of the repair, and counts the others.
func describeDrift(found []kvscheduler.OpRecord, of *owners.Snapshot) string {
	first := found[0].Ref
	if at := slices.IndexFunc(found, func(op kvscheduler.OpRecord) bool { return op.Why == "drift" }); at >= 0 {
		first = found[at].Ref // not an object that is recreated because of it
	}
	others := make(map[string]bool)
	verbs := make(map[string]bool) // of the first
	var want, have any
	for _, op := range found {
		if op.Ref != first {
			others[op.Ref] = true
			continue
		}
		verbs[op.Verb] = true
		if op.New != nil {
			want = op.New
		}
		if op.Old != nil {
			have = op.Old
		}
	}
	text := of.Of(first).Named(first)
	switch isCreated, isDeleted := verbs[kvscheduler.Create.String()], verbs[kvscheduler.Delete.String()]; {
	case isCreated && !isDeleted:
		text += " was missing"
	case isDeleted && !isCreated:
		text += " was not desired"
	default:
		text += " was different"
		if fields := differing(want, have); fields != "" {
			text += " (" + fields + ")"
		}
	}
	if len(others) > 0 {
		text += fmt.Sprintf(", with %d objects that depend on it or drifted too", len(others))
	}
	return text
}

// describe returns the difference of an object in words.
func describe(d kvscheduler.Difference, of pod.Owners) string {
	text := fmt.Sprintf("%s: %s", of.Named(d.Ref.String()), d.Reason)
	if fields := differing(d.Want, d.Have); fields != "" {
		text += " (" + fields + ")"
	}
	return text
}

// Differences converts a difference for CHECK. A link in a sandbox has one difference for each field, because later
// plugins of a chain may change some of its fields. Any other object has one difference.
func Differences(d kvscheduler.Difference, of pod.Owners) []podmanager.Difference {
	link := linkOf(d.Want)
	w, errW := fieldsOf(d.Want)
	h, errH := fieldsOf(d.Have)
	if link == "" || d.Have == nil || errW != nil || errH != nil {
		return []podmanager.Difference{{Text: describe(d, of), Interface: link}}
	}
	var differences []podmanager.Difference
	for _, key := range unequal(w, h) {
		differences = append(differences, podmanager.Difference{
			Text:      fmt.Sprintf("%s: %s (%s)", of.Named(d.Ref.String()), d.Reason, sides(key, w, h)),
			Interface: link, Field: key, Have: h[key],
		})
	}
	if len(differences) == 0 {
		return []podmanager.Difference{{Text: describe(d, of), Interface: link}}
	}
	return differences
}

// linkOf returns the name of the link in the pod that a value stands for, or "".
func linkOf(value any) string {
	switch v := value.(type) {
	case wire.TapPeer:
		return v.Name
	case wire.Veth:
		return v.Name
	}
	return ""
}

// differing describes the fields of two values that differ: "mtu is 1300, not 1500". It returns "" if a value is
// missing.
func differing(want, have any) string {
	if want == nil || have == nil {
		return ""
	}
	w, err := fieldsOf(want)
	if err != nil {
		return ""
	}
	h, err := fieldsOf(have)
	if err != nil {
		return ""
	}
	var parts []string
	for _, key := range unequal(w, h) {
		parts = append(parts, sides(key, w, h))
	}
	return strings.Join(parts, "; ")
}

// unequal returns the names of the fields that differ.
func unequal(w, h map[string]string) []string {
	all := maps.Clone(w)
	maps.Copy(all, h)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(key string) bool { return w[key] == h[key] })
}

func sides(key string, w, h map[string]string) string {
	return fmt.Sprintf("%s is %s, not %s", key, orMissing(h[key]), orMissing(w[key]))
}

// fieldsOf returns the text of each field of a value. A value without fields has one field "it".
func fieldsOf(v any) (map[string]string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("show a value: %w", err)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		fields = map[string]json.RawMessage{"it": raw}
	}
	texts := make(map[string]string, len(fields))
	for key, raw := range fields {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		texts[key] = text
	}
	return texts, nil
}

func orMissing(text string) string {
	if text == "" {
		return "missing"
	}
	return text
}
