package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func objectsCommand(c *client) *cobra.Command {
	req := &operatorv1.ObjectsRequest{}
	cmd := &cobra.Command{
		Use:   "objects [PREFIX]",
		Short: "Lists the scheduler's objects and their phases",
		Example: `  weftctl objects vpp.route            the routes of the dataplane
  weftctl objects --pod shop/cart      all objects of a pod
  weftctl objects vpp.vrf -o yaml      with desired and applied values`,
		Args:              usage(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeRefs(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Prefix = strings.Join(args, "")
			if podErr := checkPod(req.Pod); req.Pod != "" && podErr != nil {
				return usageError{fmt.Errorf("--pod: %w", podErr)}
			}
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Objects, req)
			if err != nil {
				return err
			}
			if req.Prefix != "" && len(reply.Objects) == 0 {
				return fmt.Errorf("no objects with prefix %q", req.Prefix)
			}
			if req.Pod != "" && len(reply.Objects) == 0 {
				return fmt.Errorf("pod %s has no objects on this node", req.Pod)
			}
			return c.show(reply, func() { printObjects(&c.printer, reply) })
		},
	}
	cmd.Flags().StringVar(&req.Pod, "pod", "", "only objects of this pod, NAMESPACE/NAME")
	return cmd
}

func printObjects(p *printer, reply *operatorv1.ObjectsReply) {
	g := newGrid("object", "phase", "since", spare("owner"), "detail")
	for _, o := range reply.Objects {
		g.row(o.Ref, o.Phase, p.age(o.Since), orDash(ownersText(o.Owners)), detail(p, o))
	}
	p.printGrid(g, "no objects")
}

// detail returns an object's error, missing dependencies and next retry, or "".
func detail(p *printer, o *operatorv1.Object) string {
	var parts []string
	if o.Error != "" {
		parts = append(parts, p.bad(oneLine(o.Error)))
	}
	if len(o.Missing) > 0 {
		parts = append(parts, "waiting for "+strings.Join(o.Missing, ", "))
	}
	if retry := p.until(o.RetryAt); retry != "" {
		parts = append(parts, fmt.Sprintf("attempt %d, next in %s", o.Attempt, retry))
	}
	return strings.Join(parts, "; ")
}

func whyCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:               "why REF",
		Short:             "Explains an object: missing dependencies, last error, next retry",
		Example:           "  weftctl why vpp.unnumbered/weft-host",
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: completeRefs(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Why, &operatorv1.WhyRequest{
				Ref: args[0],
			})
			if err != nil {
				return err
			}
			err = c.show(reply, func() {
				for _, line := range reply.Lines {
					c.paragraph(printable(line))
				}
			})
			if err == nil && !reply.Found {
				return fmt.Errorf("no object has the key or prefix %q", args[0])
			}
			return err
		},
	}
}
