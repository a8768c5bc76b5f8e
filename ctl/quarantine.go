package ctl

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func quarantineCommand(c *client) *cobra.Command {
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
		RunE:  query(c, operatorv1.OperationsClient.Quarantine, &operatorv1.QuarantineRequest{}, printQuarantine),
	}, &cobra.Command{
		Use:     "release NAMESPACE/NAME",
		Short:   "Releases the attachments of a pod, or of a container by its ID",
		Example: "  weftctl quarantine release shop/web-0",
		Args:    usage(cobra.ExactArgs(1)),

		ValidArgsFunction: completePods(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Release, &operatorv1.ReleaseRequest{
				Name: args[0],
			})
			if err != nil {
				return err
			}
			err = c.show(reply, func() {
				if reply.Released > 0 {
					c.printf("%s of %s released\n", counted(int(reply.Released), "attachment"), args[0])
				}
			})
			if err == nil && reply.Error != "" {
				return errors.New(oneLine(reply.Error))
			}
			return err
		},
	})
	return command
}

// printQuarantine prints a block for each attachment: its state, since when, why, and how to release it.
func printQuarantine(p *printer, reply *operatorv1.QuarantineReply) {
	if len(reply.Entries) == 0 {
		p.printf("no quarantined attachments\n")
	}
	for i, e := range reply.Entries {
		name := e.GetAttachment().GetContainerId()
		if e.Pod.GetName() != "" {
			name = podName(e.Pod)
		}
		if i > 0 {
			p.printf("\n")
		}
		p.printf("%s %s: %s\n", name, e.GetAttachment().GetIfName(), p.bad(e.State))
		p.field("since",
			fmt.Sprintf("%s (%s ago), %s alone", p.clock(e.Since), p.age(e.Since), counted(int(e.Crashes), "crash")))
		p.field("why", oneLine(e.Reason))
		if e.State == podQuarantined {
			p.field("release", "weftctl quarantine release "+name)
		}
	}
}
