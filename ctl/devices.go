package ctl

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) devicesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "Lists the memif devices that kubelet allocated, with their pods",
		Example: "  weftctl devices -o json | jq '.allocations[] | select(.pod == null)'",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), c.devices)
		},
	}
}

func (c *client) devices(ctx context.Context, agent weftv1.OperationsClient) error {
	reply, err := agent.Devices(ctx, &weftv1.DevicesRequest{})
	if err != nil {
		return err
	}
	return c.show(reply, func() {
		kubelet := "not registered with kubelet"
		if reply.Registered {
			kubelet = "registered with kubelet"
		}
		c.printf("memif devices: %d free, %s\n\n", reply.Free, kubelet)
		allocations := newGrid("pod", "container", "devices", "age", "socket", "directory")
		for _, a := range reply.Allocations {
			name := ""
			if p := a.Pod; p != nil {
				name = p.Namespace + "/" + p.Name
			}
			allocations.row(orDash(name), orDash(a.Container), orDash(strings.Join(a.Devices, " ")), c.age(a.Created), a.Socket, a.Directory)
		}
		c.printGrid(allocations, "no allocations")
	})
}
