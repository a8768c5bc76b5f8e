package ctl

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) garbageCommand() *cobra.Command {
	req := &weftv1.CollectGarbageRequest{}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Deletes attachments of deleted sandboxes, and lists those that are kept with the reason",
		Example: `  weftctl gc --dry-run                     list the candidates and the missing evidence
  weftctl gc --force weft/0123456789ab.../eth0  delete this attachment unconditionally`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error { return c.collect(ctx, agent, req) })
		},
	}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only list attachments, delete none")
	cmd.Flags().StringArrayVar(&req.Force, "force", nil, "delete only this attachment, NETWORK/CONTAINER/INTERFACE, even if its pod runs and loses its network; can be repeated")
	return cmd
}

func (c *client) collect(ctx context.Context, agent weftv1.OperationsClient, req *weftv1.CollectGarbageRequest) error {
	reply, err := agent.CollectGarbage(ctx, req)
	if err != nil {
		return err
	}
	failed := 0
	err = c.show(reply, func() {
		g := newGrid("attachment", "pod", "reason", "result")
		for _, x := range reply.Garbage {
			name := ""
			if p := x.Pod; p.GetName() != "" {
				name = p.Namespace + "/" + p.Name
			}
			g.row(x.Key, orDash(name), x.Reason, c.garbageResult(x))
		}
		c.printGrid(g, "all attachments have sandboxes")
	})
	for _, x := range reply.Garbage {
		if x.Error != "" {
			failed++
		}
	}
	return cmp.Or(err, failures(failed))
}

func (c *client) garbageResult(x *weftv1.Garbage) string {
	switch {
	case x.Error != "":
		return c.bad("failed: ") + oneLine(x.Error)
	case x.Deleted:
		return c.good("deleted")
	case x.Lacks != "":
		return "kept: " + oneLine(x.Lacks)
	}
	return "would be deleted"
}

func failures(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s not deleted", counted(n, "attachment"))
}
