package operations

import (
	"cmp"
	"context"
	"strings"

	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/drift"
	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// repairs runs resyncs and audits.
type repairs struct {
	health    *health.Conditions
	loop      *eventloop.Loop
	scheduler *kvscheduler.Scheduler
	drift     *drift.Monitor
	owners    *owners.Index
}

// Resync runs a resync.
func (r *repairs) Resync(ctx context.Context, req *operatorv1.ResyncRequest) (*operatorv1.ResyncReply, error) {
	kinds := map[string]eventloop.Resync{
		"": eventloop.Full, "full": eventloop.Full, "upstream": eventloop.Upstream, "downstream": eventloop.Downstream,
	}
	kind, ok := kinds[req.Kind]
	if !ok {
		return &operatorv1.ResyncReply{
			Error: "the kind of a resync must be full, upstream or downstream, not " + req.Kind,
		}, nil
	}
	if !r.health.Holds(health.Started) {
		return &operatorv1.ResyncReply{
			Error: "the agent is starting: its first resync has not ended; see weftctl status",
		}, nil
	}
	reason := cmp.Or(req.Reason, "requested by an operator")
	if req.DryRun {
		return r.dryResync(ctx, req.Force)
	}
	rec, err := r.loop.Do(ctx, eventloop.Resynchronize{
		Kind:   kind,
		Reason: reason,
		Scope:  eventloop.Scope{Force: req.Force},
	})
	reply := &operatorv1.ResyncReply{Error: textOf(err)}
	if rec != nil {
		reply.Event = rec.Seq
	}
	return reply, nil
}

// dryResync lists the operations of a downstream resync.
func (r *repairs) dryResync(ctx context.Context, force bool) (*operatorv1.ResyncReply, error) {
	rec, err := r.scheduler.Resync(ctx, kvscheduler.ResyncOpt{DryRun: true, Force: force})
	reply := &operatorv1.ResyncReply{Error: textOf(err)}
	if rec != nil {
		of := r.owners.Now()
		for _, op := range rec.Ops {
			reply.Operations = append(reply.Operations, op.Verb+" "+of.Of(op.Ref).Named(op.Ref)+" ("+op.Why+")")
		}
		for _, w := range rec.Pending {
			if missing := strings.Join(w.Missing, ", "); strings.HasPrefix(missing, "prune: ") {
				reply.Operations = append(reply.Operations, "keep "+of.Of(w.Ref).Named(w.Ref)+" ("+missing+")")
			}
		}
	}
	return reply, nil
}

// Audit audits all kinds now.
func (r *repairs) Audit(ctx context.Context, _ *operatorv1.AuditRequest) (*operatorv1.AuditReply, error) {
	audit, err := r.drift.Now(ctx)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	reply := &operatorv1.AuditReply{Objects: uint32(audit.Objects), Repaired: audit.Repaired, Error: textOf(audit.Err)}
	of := r.owners.Now()
	for _, f := range audit.Found {
		reply.Found = append(reply.Found, &operatorv1.Drift{Ref: f.Ref, Text: f.Text, Owners: ownersOf(of.Of(f.Ref))})
	}
	return reply, nil
}
