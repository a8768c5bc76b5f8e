package ctl

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// resyncTimeout is the default timeout of a resync: on a large node it reads and compares about 20,000 objects, after
// the events that are already queued.
const resyncTimeout = 2 * time.Minute

func resyncCommand(c *client) *cobra.Command {
	req := &operatorv1.ResyncRequest{Reason: "weftctl"}
	cmd := &cobra.Command{
		Use:   "resync [full|upstream|downstream]",
		Short: "Starts a resync and waits for its end",
		Long: `Starts a resync and waits for its end.

  full        rebuild the desired state, read the actual state, repair differences (the default)
  upstream    rebuild the desired state, compare it with the cached actual state
  downstream  read the actual state, repair differences

A resync deletes objects of Weft that are no longer desired. If these are more than 16 and more than half of a kind, the resync
keeps them and fails with "prune guard", because the desired state may be incomplete by mistake. --dry-run lists them, --force
deletes them.`,
		Example:   "  weftctl resync downstream && weftctl transactions 1\n  weftctl resync --dry-run --force    list the objects that a forced resync deletes",
		Args:      usage(cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{"full", "upstream", "downstream"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Kind = "full"; len(args) == 1 {
				req.Kind = args[0]
			}
			if req.DryRun && len(args) == 1 && req.Kind != "downstream" {
				return fmt.Errorf("--dry-run supports only kind downstream, not %s", req.Kind)
			}
			return resync(cmd, c, req)
		},
	}
	cmd.Flags().BoolVar(&req.Force, "force", false, "delete all objects that are not desired, without the prune guard")
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false,
		"print the operations of a downstream resync without running them")
	return cmd
}

func resync(cmd *cobra.Command, c *client, req *operatorv1.ResyncRequest) error {
	began := c.now()
	reply, err := call(cmd.Context(), c.agent.within(cmd, resyncTimeout), operatorv1.OperationsClient.Resync, req)
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
			c.printf("%s resync done in %s (event #%d)\n", req.Kind, c.now().Sub(began).Round(time.Millisecond),
				reply.Event)
		}
	})
	switch {
	case err != nil || reply.Error == "":
		return err
	case reply.Event == 0:
		return errors.New(oneLine(reply.Error))
	}
	return fmt.Errorf("%s resync (event #%d): %s", req.Kind, reply.Event, oneLine(reply.Error))
}
