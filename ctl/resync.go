package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// resyncPatience is how long a resync may take unless --timeout says otherwise: a full one of a large node reads back
// and compares some 20,000 objects, behind whatever was queued before it.
const resyncPatience = 2 * time.Minute

func (c *client) resyncCommand() *cobra.Command {
	req := &weftv1.ResyncRequest{Reason: "weftctl"}
	cmd := &cobra.Command{
		Use:   "resync [full|upstream|downstream]",
		Short: "Asks for a resync and waits for it",
		Long: `Asks for a resync and waits for it.

  full        rebuild what is desired, read back what is applied, repair the difference (the default)
  upstream    rebuild what is desired, compare it with what is known to be applied
  downstream  read back what is applied, repair the difference

Objects of Weft that are not desired any more are deleted. If they are more than 16 and more than half of a kind, they are kept, and the
resync fails with "prune guard": it may be that what desires them is missing by mistake. --dry-run shows them, --force deletes them.`,
		Example:   "  weftctl resync downstream && weftctl transactions 1\n  weftctl resync --dry-run --force    what would a forced resync delete?",
		Args:      usage(cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{"full", "upstream", "downstream"},
		RunE: func(cmd *cobra.Command, args []string) error {
			patience := resyncPatience
			if req.Kind = "full"; len(args) == 1 {
				req.Kind = args[0]
			}
			if req.DryRun && len(args) == 1 && req.Kind != "downstream" {
				return fmt.Errorf("a dry run compares what is applied with what is desired: use weftctl resync downstream --dry-run, not %s", req.Kind)
			}
			if cmd.Flags().Changed("timeout") {
				patience = c.timeout
			}
			return c.askFor(cmd.Context(), patience, func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.resync(ctx, agent, req)
			})
		},
	}
	cmd.Flags().BoolVar(&req.Force, "force", false, "delete objects that are not desired, however many")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "change nothing, and print what a downstream resync would do")
	return cmd
}

func (c *client) resync(ctx context.Context, agent weftv1.OperationsClient, req *weftv1.ResyncRequest) error {
	began, kind := c.env.Now(), req.Kind
	reply, err := agent.Resync(ctx, req)
	if err != nil {
		return err
	}
	err = c.show(reply, func() {
		for _, op := range reply.Operations {
			c.printf("%s\n", oneLine(op))
		}
		switch {
		case reply.Error != "":
		case req.DryRun:
			c.printf("dry run: %s, nothing was changed\n", counted(len(reply.Operations), "operation"))
		default:
			c.printf("%s resync done in %s (event #%d)\n", kind, c.env.Now().Sub(began).Round(time.Millisecond), reply.Event)
		}
	})
	switch {
	case err != nil || reply.Error == "":
		return err
	case reply.Event == 0:
		return errors.New(oneLine(reply.Error))
	}
	return fmt.Errorf("%s resync (event #%d): %s", kind, reply.Event, oneLine(reply.Error))
}
