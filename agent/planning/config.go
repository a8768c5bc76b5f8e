package planning

import (
	"context"
	"strings"

	"github.com/weftnet/weft/agent/config"
	"github.com/weftnet/weft/eventloop"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// followed is the only setting that the agent follows while it runs.
const followed = "networks"

// configs plans changes of the agent's configuration.
type configs struct {
	planner

	loop      *eventloop.Loop
	settings  func() config.Config // the effective configuration
	newValues func(context.Context, config.Config) ([]eventloop.Setting, []string, error)
}

// PlanConfig plans a start of the agent with another configuration file.
func (c *configs) PlanConfig(ctx context.Context, req *operatorv1.PlanConfigRequest) (*operatorv1.PlanReply, error) {
	now := c.settings()
	if now.Parse == nil {
		return &operatorv1.PlanReply{Error: "this agent cannot read another configuration"}, nil
	}
	next, err := now.Parse([]byte(req.Document))
	if err != nil {
		return &operatorv1.PlanReply{Error: strings.ReplaceAll(err.Error(), "\n", "; ")}, nil
	}
	reply := &operatorv1.PlanReply{Settings: settingsOf(now.Changes(next))}
	if isStarting, refusal := c.served(); isStarting {
		reply.Notes = append(reply.Notes, "objects are not planned: "+startingText(refusal))
		return reply, nil
	}
	values, notes, err := c.newValues(ctx, next)
	reply.Notes = append(reply.Notes, notes...)
	if err != nil {
		reply.Error = err.Error()
		return reply, nil //nolint:nilerr // an answer: the configuration would be refused
	}
	planned, err := c.loop.PlanValues(ctx, values)
	if err != nil {
		reply.Error = err.Error()
		return reply, nil //nolint:nilerr // an answer: the configuration would be refused
	}
	c.addTo(ctx, reply, planned.Change)
	return reply, nil
}

func settingsOf(changes []config.Changed) []*operatorv1.SettingChange {
	var out []*operatorv1.SettingChange
	for _, c := range changes {
		out = append(out, &operatorv1.SettingChange{Key: c.Key, Old: c.Old, New: c.New, Restart: c.Key != followed})
	}
	return out
}
