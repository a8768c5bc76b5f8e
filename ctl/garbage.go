package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func garbageCommand(c *client) *cobra.Command {
	req := &operatorv1.CollectGarbageRequest{}
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Deletes attachments of deleted sandboxes, and lists those that are kept with the reason",
		Example: `  weftctl gc --dry-run                     list the candidates and the missing evidence
  weftctl gc --force weft/0123456789ab.../eth0  delete this attachment unconditionally`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.CollectGarbage, req)
			if err != nil {
				return err
			}
			failed := 0
			for _, x := range reply.Garbage {
				if x.Error != "" {
					failed++
				}
			}
			err = c.show(reply, func() { printGarbage(&c.printer, reply) })
			if err == nil && failed > 0 {
				return fmt.Errorf("%s not deleted", counted(failed, "attachment"))
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only list attachments, delete none")
	cmd.Flags().StringArrayVar(&req.Force, "force", nil,
		"delete only this attachment, NETWORK/CONTAINER/INTERFACE, even if its pod runs and loses its network; can be repeated")
	return cmd
}

func printGarbage(p *printer, reply *operatorv1.CollectGarbageReply) {
	g := newGrid("attachment", "pod", "reason", "result")
	for _, x := range reply.Garbage {
		g.row(x.Key, podName(x.Pod), x.Reason, garbageResult(p, x))
	}
	p.printGrid(g, "all attachments have sandboxes")
}

func garbageResult(p *printer, x *operatorv1.Garbage) string {
	switch {
	case x.Error != "":
		return p.bad("failed: ") + oneLine(x.Error)
	case x.Deleted:
		return p.good("deleted")
	case x.Lacks != "":
		return "kept: " + oneLine(x.Lacks)
	}
	return "would be deleted"
}
