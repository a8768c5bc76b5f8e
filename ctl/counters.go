package ctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) countersCommand() *cobra.Command {
	var pod string
	cmd := &cobra.Command{
		Use:   "counters",
		Short: "Shows the counters of pods' interfaces and the dataplane's error counters",
		Example: "  weftctl counters --pod shop/cart\n" +
			"  weftctl counters -o json | jq '.errors[] | select(.node == \"ip4-input\")'",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if namespace, name, ok := strings.Cut(pod, "/"); pod != "" && (!ok || namespace == "" || name == "") {
				return usageError{fmt.Errorf("--pod %q: must be NAMESPACE/NAME", pod)}
			}
			return c.ask(cmd.Context(), func(ctx context.Context, agent weftv1.OperationsClient) error {
				return c.counters(ctx, agent, pod)
			})
		},
	}
	cmd.Flags().StringVar(&pod, "pod", "", "show only the interfaces of this pod, NAMESPACE/NAME, without error counters")
	return cmd
}

func (c *client) counters(ctx context.Context, agent weftv1.OperationsClient, pod string) error {
	reply, err := agent.Counters(ctx, &weftv1.CountersRequest{})
	if err != nil {
		return err
	}
	if pod != "" {
		reply.Errors = nil
		reply.Interfaces = slices.DeleteFunc(reply.Interfaces, func(i *weftv1.InterfaceCounters) bool {
			return i.GetPod().GetNamespace()+"/"+i.GetPod().GetName() != pod
		})
	}
	return c.show(reply, func() {
		interfaces := newGrid("pod", "container", "interface", "type", "rx packets", "rx bytes", "rx drops", "tx packets", "tx bytes", "tx drops", "connected")
		for _, i := range reply.Interfaces {
			interfaces.row(podName(i.Pod), shortID(i.Attachment.GetContainerId()), i.Interface, i.Type,
				i.RxPackets, i.RxBytes, i.RxDrops, i.TxPackets, i.TxBytes, i.TxDrops, connected(i.Connected))
		}
		c.printGrid(interfaces, "no interface counters")
		if pod != "" {
			return
		}
		errors := newGrid("count", "node", "reason")
		for _, e := range reply.Errors {
			errors.row(e.Count, e.Node, e.Reason)
		}
		c.printf("\n")
		c.printGrid(errors, "no error counters")
	})
}

func podName(p *weftv1.Pod) string {
	if p.GetName() == "" {
		return orDash("")
	}
	return p.Namespace + "/" + p.Name
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
