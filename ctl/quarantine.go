package ctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) quarantineCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "quarantine",
		Short: "Lists and releases attachments that are not replayed because they crashed the dataplane",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "Lists quarantined attachments, and suspects, which are replayed one at a time",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return c.ask(cmd.Context(), c.quarantine) },
	}, &cobra.Command{
		Use:     "release NAMESPACE/NAME",
		Short:   "Releases the attachments of a pod, or of a container by its ID",
		Example: "  weftctl quarantine release shop/web-0",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error { return c.release(ctx, agent, args[0]) })
		},
	})
	return command
}

func (c *client) quarantine(ctx context.Context, agent weftv1.OperationsClient) error {
	reply, err := agent.Quarantine(ctx, &weftv1.QuarantineRequest{})
	if err != nil {
		return err
	}
	return c.show(reply, func() {
		entries := newGrid("pod", "interface", "state", "crashes", "age", "reason")
		for _, e := range reply.Entries {
			name := e.GetAttachment().GetContainerId()
			if p := e.Pod; p.GetName() != "" {
				name = p.Namespace + "/" + p.Name
			}
			entries.row(name, e.GetAttachment().GetIfName(), e.State, fmt.Sprint(e.Crashes), c.age(e.Since), e.Reason)
		}
		c.printGrid(entries, "no quarantined attachments")
	})
}

func (c *client) release(ctx context.Context, agent weftv1.OperationsClient, name string) error {
	reply, err := agent.Release(ctx, &weftv1.ReleaseRequest{Name: name})
	if err != nil {
		return err
	}
	err = c.show(reply, func() {
		if reply.Released > 0 {
			c.printf("%d attachments of %s released\n", reply.Released, name)
		}
	})
	if err == nil && reply.Error != "" {
		return errors.New(oneLine(reply.Error))
	}
	return err
}
