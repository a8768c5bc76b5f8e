package planning

import (
	"context"
	"fmt"

	"github.com/weftnet/weft/eventloop"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// planner plans a change on the scheduler.
type planner struct {
	dataplane

	plan   func(context.Context, eventloop.Change) (Transactions, error)
	served func() (isStarting bool, refusal error)
}

// addTo plans a change, and adds the plan to a reply.
func (p *planner) addTo(ctx context.Context, reply *operatorv1.PlanReply, change eventloop.Change) {
	transactions, err := p.plan(ctx, change)
	if err != nil {
		reply.Error = err.Error()
	}
	transactions.addTo(reply)
	p.noteDown(reply)
}

// noteDown notes that the plan is made without the dataplane.
func (p *planner) noteDown(reply *operatorv1.PlanReply) {
	if note := p.lastKnown("the plan is made from its last known state"); note != "" {
		reply.Notes = append(reply.Notes, note)
	}
}

// startingText says that no change can be planned before the agent has started.
func startingText(refusal error) string {
	if refusal == nil {
		return "the agent is starting: its first resync has not ended; see weftctl status"
	}
	return fmt.Sprintf("%v; see weftctl status", refusal)
}
