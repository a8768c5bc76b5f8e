package planning

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/external"
	"github.com/weftnet/weft/eventloop"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// externals plans changes of external configuration.
type externals struct {
	planner

	loop *eventloop.Loop
}

// PlanExternal plans the replacement of one source of external configuration.
func (e *externals) PlanExternal(
	ctx context.Context, req *operatorv1.PlanExternalRequest,
) (*operatorv1.PlanReply, error) {
	if req.Source == "" {
		return nil, status.Error(codes.InvalidArgument, "the name of the source is empty")
	}
	if isStarting, refusal := e.served(); isStarting {
		return &operatorv1.PlanReply{Error: startingText(refusal)}, nil
	}
	values, err := external.Parse(req.Document)
	if err != nil {
		return &operatorv1.PlanReply{Error: err.Error()}, nil //nolint:nilerr // an error of the request, not of the call
	}
	planned, err := e.loop.PlanExternal(ctx, req.Source, values)
	if err != nil {
		return &operatorv1.PlanReply{Error: err.Error()}, nil //nolint:nilerr // an answer: the change would be refused
	}
	reply := &operatorv1.PlanReply{}
	for _, d := range planned.Record.Drops {
		if d.Source == req.Source {
			reply.Skipped = append(reply.Skipped, d.Key+": "+d.Reason)
		}
	}
	e.addTo(ctx, reply, planned.Change)
	return reply, nil
}
