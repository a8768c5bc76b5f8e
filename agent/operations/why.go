package operations

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/pod"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// Why explains the object with the requested key, or, of the objects with that prefix, those that are not in sync. Each
// explanation ends with the last operation on the object.
func (o *objects) Why(_ context.Context, req *operatorv1.WhyRequest) (*operatorv1.WhyReply, error) {
	view := o.scheduler.View()
	refs := matching(view, req.Ref)
	reply := &operatorv1.WhyReply{Found: len(refs) > 0}
	if exact, err := kvscheduler.ParseRef(req.Ref); err == nil && (len(refs) == 0 || slices.Contains(refs, exact)) {
		refs = []kvscheduler.Ref{exact}
	}
	if len(refs) == 0 {
		reply.Lines = []string{fmt.Sprintf("no objects with prefix %q; weftctl objects lists all", req.Ref)}
		return reply, nil
	}
	history := o.lastOperations(refs)
	of := o.owners.Now()
	for _, ref := range refs {
		reasons := o.scheduler.Why(ref)
		if len(reasons) == 0 {
			continue
		}
		for _, r := range reasons {
			reason := reasonOf(r, of.Of(r.Ref.String()))
			reply.Lines = append(reply.Lines, reason.Text)
			reply.Reasons = append(reply.Reasons, reason)
		}
		history[ref.String()].addTo(reply)
	}
	if len(reply.Lines) == 0 {
		reply.Lines = settled(view, refs, of)
		if len(refs) == 1 {
			history[refs[0].String()].addTo(reply)
		}
	}
	return reply, nil
}

func reasonOf(r kvscheduler.Reason, of pod.Owners) *operatorv1.Reason {
	return &operatorv1.Reason{
		Ref:      r.Ref.String(),
		Phase:    r.Phase.String(),
		Text:     named(r.Text, r.Ref.String(), of),
		WaitsFor: r.WaitsFor,
		Error:    textOf(r.Err),
		Attempt:  uint32(r.Attempt), RetryAt: stamp(r.RetryAt), Owners: ownersOf(of),
	}
}

// lastOperation is the last operation on an object in the scheduler's log.
type lastOperation struct {
	record *kvscheduler.Record
	op     kvscheduler.OpRecord
}

// lastOperations finds the last operation on each object.
func (o *objects) lastOperations(refs []kvscheduler.Ref) map[string]lastOperation {
	all := make(map[string]lastOperation, len(refs))
	for _, ref := range refs {
		all[ref.String()] = lastOperation{}
	}
	for r := range o.scheduler.Log(0) {
		for _, op := range r.Ops {
			if _, wanted := all[op.Ref]; wanted {
				all[op.Ref] = lastOperation{r, op}
			}
		}
	}
	return all
}

// addTo adds the operation to a reply, with its reason, time and event, if the log has an operation.
func (l lastOperation) addTo(reply *operatorv1.WhyReply) {
	if l.record == nil {
		return
	}
	at := l.record.Start.Add(l.op.At)
	reply.LastOperations = append(reply.LastOperations, &operatorv1.LastOperation{
		Ref:         l.op.Ref,
		Verb:        l.op.Verb,
		Why:         l.op.Why,
		At:          stamp(at),
		Transaction: l.record.Seq,
		Event:       l.record.Event,
		Error:       l.op.Err,
	})
	text := fmt.Sprintf("  last operation: %s (%s) %s ago, in transaction %d", l.op.Verb, l.op.Why,
		time.Since(at).Round(time.Second), l.record.Seq)
	if l.record.Event != 0 {
		text += fmt.Sprintf(" of event #%d", l.record.Event)
	}
	if l.record.Label != "" {
		text += ": " + l.record.Label
	}
	if l.op.Err != "" {
		text += "; it failed: " + l.op.Err
	}
	reply.Lines = append(reply.Lines, text)
}

// settled describes objects without explanations: one object by its phase, several by numbers.
func settled(view kvscheduler.View, refs []kvscheduler.Ref, of *owners.Snapshot) []string {
	if len(refs) > 1 {
		return []string{countsOf(view, refs, of)}
	}
	name := of.Of(refs[0].String()).Named(refs[0].String())
	switch status, _ := view.Status(refs[0]); status.Phase {
	case kvscheduler.InSync:
		return []string{name + " is in sync"}
	case kvscheduler.Observed:
		return []string{name + " exists; Weft observes it but does not create it"}
	default: // an operation is in progress
		return []string{fmt.Sprintf("%s is %s", name, status.Phase)}
	}
}

// countsOf counts objects by phase and names the first one that is not in sync.
func countsOf(view kvscheduler.View, refs []kvscheduler.Ref, of *owners.Snapshot) string {
	counts := map[kvscheduler.Phase]int{}
	first := ""
	for _, ref := range refs {
		status, _ := view.Status(ref)
		counts[status.Phase]++
		if first == "" && status.Phase != kvscheduler.InSync && status.Phase != kvscheduler.Observed {
			first = of.Of(ref.String()).Named(ref.String())
		}
	}
	if counts[kvscheduler.InSync] == len(refs) {
		return fmt.Sprintf("all %d objects are in sync", len(refs))
	}
	var parts []string
	for _, phase := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[phase], phase))
	}
	if first == "" {
		return strings.Join(parts, ", ")
	}
	return strings.Join(parts, ", ") + "; the first that is not in sync is " + first
}
