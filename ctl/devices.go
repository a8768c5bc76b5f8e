package ctl

import (
	"strings"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func devicesCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "Lists the memif devices that kubelet allocated, with their pods",
		Example: "  weftctl devices -o json | jq '.allocations[] | select(.pod == null)'",
		Args:    usage(cobra.NoArgs),
		RunE:    query(c, operatorv1.OperationsClient.Devices, &operatorv1.DevicesRequest{}, printDevices),
	}
}

func printDevices(p *printer, reply *operatorv1.DevicesReply) {
	kubelet := "not registered with kubelet"
	if reply.Registered {
		kubelet = "registered with kubelet"
	}
	p.printf("memif devices: %d free, %s\n\n", reply.Free, kubelet)
	g := newGrid("pod", "container", "devices", "age", "socket", wide("directory"))
	for _, a := range reply.Allocations {
		g.row(podName(a.Pod), orDash(a.Container), orDash(strings.Join(a.Devices, " ")), p.age(a.Created), a.Socket,
			a.Directory)
	}
	p.printGrid(g, "no allocations")
}
