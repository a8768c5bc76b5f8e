package planning

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/agent/external"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// PlanExternal plans the replacement of one source of external configuration.
func (s *Server) PlanExternal(ctx context.Context, req *operatorv1.PlanExternalRequest) (*operatorv1.PlanReply, error) {
	if req.Source == "" {
		return nil, status.Error(codes.InvalidArgument, "the name of the source is empty")
	}
	if isStarting, refusal := s.config.Served(); isStarting {
		return &operatorv1.PlanReply{Error: startingText(refusal)}, nil
	}
	values, err := external.Parse(req.Document)
	if err != nil {
		return &operatorv1.PlanReply{Error: err.Error()}, nil //nolint:nilerr // an error of the request, not of the call
	}
	planned, err := s.config.Loop.PlanExternal(ctx, req.Source, values)
	if err != nil {
		return &operatorv1.PlanReply{Error: err.Error()}, nil //nolint:nilerr // an answer: the change would be refused
	}
	reply := &operatorv1.PlanReply{}
	for _, d := range planned.Record.Drops {
		if d.Source == req.Source {
			reply.Skipped = append(reply.Skipped, d.Key+": "+d.Reason)
		}
	}
	transactions, err := s.config.Plan(ctx, planned.Change)
	if err != nil {
		reply.Error = err.Error()
	}
	transactions.addTo(reply)
	s.noteDown(reply)
	return reply, nil
}

// startingText says that no change can be planned before the agent has started.
func startingText(refusal error) string {
	if refusal == nil {
		return "the agent is starting: its first resync has not ended; see weftctl status"
	}
	return fmt.Sprintf("%v; see weftctl status", refusal)
}

// noteDown notes that the plan is made without the dataplane.
func (s *Server) noteDown(reply *operatorv1.PlanReply) {
	if note := s.lastKnown("the plan is made from its last known state"); note != "" {
		reply.Notes = append(reply.Notes, note)
	}
}
