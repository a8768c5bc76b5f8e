package ctl

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func countersCommand(c *client) *cobra.Command {
	var pod string
	cmd := &cobra.Command{
		Use:   "counters",
		Short: "Shows the counters of pods' interfaces and the dataplane's error counters",
		Example: "  weftctl counters --pod shop/cart\n" +
			"  weftctl counters -o json | jq '.errors[] | select(.node == \"ip4-input\")'",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPod(pod); pod != "" && err != nil {
				return usageError{fmt.Errorf("--pod: %w", err)}
			}
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Counters,
				&operatorv1.CountersRequest{})
			if err != nil {
				return err
			}
			if pod != "" {
				reply.Errors = nil
				reply.Interfaces = slices.DeleteFunc(reply.Interfaces, func(i *operatorv1.InterfaceCounters) bool {
					return podName(i.Pod) != pod
				})
				if len(reply.Interfaces) == 0 {
					return fmt.Errorf("pod %s has no interface with counters on this node", pod)
				}
			}
			return c.show(reply, func() { printCounters(&c.printer, reply, pod == "") })
		},
	}
	cmd.Flags().StringVar(&pod, "pod", "",
		"show only the interfaces of this pod, NAMESPACE/NAME, without error counters")
	return cmd
}

func printCounters(p *printer, reply *operatorv1.CountersReply, errors bool) {
	g := newGrid("pod", wide("container"), "interface", wide("type"), "rx packets", wide("rx bytes"), "rx drops",
		"tx packets", wide("tx bytes"), "tx drops", "connected")
	for _, i := range reply.Interfaces {
		g.row(podName(i.Pod), shortID(i.Attachment.GetContainerId()), i.Interface, i.Type,
			i.RxPackets, i.RxBytes, i.RxDrops, i.TxPackets, i.TxBytes, i.TxDrops, connected(i.Connected))
	}
	p.printGrid(g, "no interface counters")
	if !errors {
		return
	}
	g = newGrid("count", "node", "reason")
	hidden := 0
	for _, e := range reply.Errors {
		if e.Statistic {
			hidden++
			continue
		}
		g.row(e.Count, e.Node, e.Reason)
	}
	p.printf("\n")
	p.printGrid(g, "no error counters")
	p.printHidden(hidden)
}

// connected formats the state of a memif; it is nil for other interfaces.
func connected(yes *bool) string {
	switch {
	case yes == nil:
		return orDash("")
	case *yes:
		return "yes"
	}
	return "no"
}
