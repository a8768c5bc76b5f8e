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
	return &cobra.Command{
		Use:   "resync [full|upstream|downstream]",
		Short: "Asks for a resync and waits for it",
		Long: `Asks for a resync and waits for it.

  full        rebuild what is desired, read back what is applied, repair the difference (the default)
  upstream    rebuild what is desired, compare it with what is known to be applied
  downstream  read back what is applied, repair the difference`,
		Example:   "  weftctl resync downstream && weftctl transactions 1",
		Args:      usage(cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{"full", "upstream", "downstream"},
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, patience := "full", resyncPatience
			if len(args) == 1 {
				kind = args[0]
			}
			if cmd.Flags().Changed("timeout") {
				patience = c.timeout
			}
			return c.askFor(cmd.Context(), patience, func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.resync(ctx, agent, kind)
			})
		},
	}
}

func (c *client) resync(ctx context.Context, agent weftv1.OperationsClient, kind string) error {
	began := c.env.Now()
	reply, err := agent.Resync(ctx, &weftv1.ResyncRequest{Kind: kind, Reason: "weftctl"})
	if err != nil {
		return err
	}
	err = c.show(reply, func() {
		if reply.Error == "" {
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
