package ctl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// auditTimeout is the default timeout of an audit, which reads everything of the dataplane and the pods.
const auditTimeout = 2 * time.Minute

func auditCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "audit",
		Short: "Compares all objects with the machine now, and repairs or reports drift",
		Long: `Compares all objects with the kernel and the dataplane now, without waiting for the periodic audit. The agent repairs drift, or only
reports it, as its setting "drift" says. The exit code is 1 if drift was found and not repaired. weftctl diff compares without repairs.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := call(cmd.Context(), c.agent.within(cmd, auditTimeout), operatorv1.OperationsClient.Audit,
				&operatorv1.AuditRequest{})
			if err != nil {
				return err
			}
			if err := c.show(reply, func() { printAudit(&c.printer, reply) }); err != nil {
				return err
			}
			switch {
			case reply.Error != "":
				return fmt.Errorf("audit: %s", oneLine(reply.Error))
			case len(reply.Found) > 0 && !reply.Repaired:
				return fmt.Errorf("audit: %s drifted and not repaired, because the agent's setting drift is report",
					counted(len(reply.Found), "object"))
			}
			return nil
		},
	}
}

func printAudit(p *printer, reply *operatorv1.AuditReply) {
	for _, d := range reply.Found {
		p.printf("%s\n", p.bad(oneLine(d.Text)))
	}
	switch {
	case len(reply.Found) == 0 && reply.Error == "":
		p.printf("%s compared, %s\n", counted(int(reply.Objects), "object"), p.good("no drift"))
	case reply.Repaired:
		p.printf("%s compared, %d drifted and repaired\n", counted(int(reply.Objects), "object"), len(reply.Found))
	default:
		p.printf("%s compared, %d drifted\n", counted(int(reply.Objects), "object"), len(reply.Found))
	}
}

func logLevelCommand(c *client) *cobra.Command {
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Shows or changes the level of the agent's log: debug, info, warn, error",
		Long: `Shows or changes the level of the agent's log. A change lasts until the agent restarts, or for the time in --for. The configuration is
not changed.`,
		Example:   "  weftctl log-level debug --for 10m",
		Args:      usage(cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{"debug", "info", "warn", "error"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if duration < 0 || duration > 0 && len(args) == 0 {
				return usageError{fmt.Errorf("--for %s: needs a level, and must be positive", duration)}
			}
			req := &operatorv1.LogLevelRequest{For: durationpb.New(duration)}
			if len(args) == 1 {
				req.Level = args[0]
			}
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.LogLevel, req)
			if err != nil {
				return err
			}
			return c.show(reply, func() { printLogLevel(&c.printer, reply) })
		},
	}
	cmd.Flags().DurationVar(&duration, "for", 0, "return to the configured level after this time")
	return cmd
}

func printLogLevel(p *printer, reply *operatorv1.LogLevelReply) {
	switch left := p.until(reply.Until); {
	case left != "":
		p.printf("%s for %s, then %s\n", reply.Level, left, reply.Configured)
	case reply.Level != reply.Configured:
		p.printf("%s until the agent restarts, then %s\n", reply.Level, reply.Configured)
	default:
		p.printf("%s\n", reply.Level)
	}
}
