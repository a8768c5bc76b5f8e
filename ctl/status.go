package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func statusCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Shows the state of the agent and the dataplane; exit code 1 if not ready",
		Example: "  weftctl status || journalctl -u weft-agent",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.State, &operatorv1.StateRequest{})
			if err != nil {
				return err
			}
			if err := c.show(reply, func() { printStatus(&c.printer, reply) }); err != nil || reply.Ready {
				return err
			}
			var reasons []string
			for _, condition := range reply.Conditions {
				if !condition.Ok {
					reasons = append(reasons, condition.Name+": "+oneLine(condition.Message))
				}
			}
			return fmt.Errorf("the agent is not ready: %s", strings.Join(reasons, "; "))
		},
	}
}

func printStatus(p *printer, s *operatorv1.StateReply) {
	ready := p.bad("not ready")
	if s.Ready {
		ready = p.good("ready")
	}
	facts := newGrid()
	facts.row("node", orDash(s.Node))
	facts.row("agent", fmt.Sprintf("%s, %s, up %s", ready, s.Version, p.age(s.Started)))
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
	p.printGrid(facts, "")
	if len(s.Conditions) == 0 {
		return
	}
	conditions := newGrid("condition", "state", "message")
	for _, condition := range s.Conditions {
		state := p.bad("not ok") // "quarantine yes" would not say whether there is one
		if condition.Ok {
			state = p.good("ok")
		}
		conditions.row(condition.Name, state, oneLine(condition.Message))
	}
	p.printf("\n")
	p.printGrid(conditions, "")
}

func settingsCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:     "settings",
		Short:   "Shows the agent's effective configuration as YAML",
		Example: "  weftctl settings | grep coolDown",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Settings,
				&operatorv1.SettingsRequest{})
			if err != nil {
				return err
			}
			var document map[string]any
			if err := yaml.Unmarshal([]byte(reply.Yaml), &document); err != nil {
				return fmt.Errorf("settings of the agent: %w", err)
			}
			return c.show(document, func() { c.printf("%s\n", strings.TrimSuffix(printable(reply.Yaml), "\n")) })
		},
	}
}
