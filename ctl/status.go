package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Shows the state of the agent and the dataplane; exit code 1 if not ready",
		Example: "  weftctl status || journalctl -u weft-agent",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), c.status)
		},
	}
}

func (c *client) status(ctx context.Context, agent weftv1.OperationsClient) error {
	reply, err := agent.State(ctx, &weftv1.StateRequest{})
	if err != nil {
		return err
	}
	if err := c.show(reply, func() { c.printStatus(reply) }); err != nil || reply.Ready {
		return err
	}
	var reasons []string
	for _, condition := range reply.Conditions {
		if !condition.Ok {
			reasons = append(reasons, condition.Name+": "+oneLine(condition.Message))
		}
	}
	return fmt.Errorf("the agent is not ready: %s", strings.Join(reasons, "; "))
}

func (c *client) printStatus(s *weftv1.StateReply) {
	ready := c.bad("not ready")
	if s.Ready {
		ready = c.good("ready")
	}
	facts := newGrid()
	facts.row("agent", fmt.Sprintf("%s, %s, up %s", ready, s.Version, c.age(s.Started)))
	facts.row("dataplane", orDash(s.Dataplane))
	facts.row("attachments", s.Attachments)
	events := fmt.Sprintf("%d handled, %d queued", s.Events, s.Queue)
	if s.Running != "" {
		events += ", running: " + s.Running
	}
	facts.row("events", events)
	var phases []string
	for _, phase := range slices.Sorted(maps.Keys(s.Objects)) {
		phases = append(phases, fmt.Sprintf("%d %s", s.Objects[phase], phase))
	}
	facts.row("objects", orDash(strings.Join(phases, ", ")))
	c.printGrid(facts, "")
	if len(s.Conditions) == 0 {
		return
	}
	conditions := newGrid("condition", "ok", "message")
	for _, condition := range s.Conditions {
		ok := c.bad("no")
		if condition.Ok {
			ok = c.good("yes")
		}
		conditions.row(condition.Name, ok, oneLine(condition.Message))
	}
	c.printf("\n")
	c.printGrid(conditions, "")
}
