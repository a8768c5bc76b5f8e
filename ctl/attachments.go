package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func (c *client) attachmentsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "attachments",
		Aliases: []string{"pods"},
		Short:   "Lists the wired pods, interface by interface",
		Example: "  weftctl attachments -o json | jq -r '.attachments[].pod.name'",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), c.attachments)
		},
	}
}

func (c *client) attachments(ctx context.Context, agent weftv1.OperationsClient) error {
	reply, err := agent.Attachments(ctx, &weftv1.AttachmentsRequest{})
	if err != nil {
		return err
	}
	return c.show(reply, func() {
		g := newGrid("pod", "container", "network", "interface", "type", "addresses", "mac", "object", "age")
		for _, a := range reply.Attachments {
			c.attachmentRows(g, a)
		}
		c.printGrid(g, "no pod is wired")
	})
}

// attachmentRows has a row for each interface; what is the attachment's own stands in the first.
func (c *client) attachmentRows(g grid, a *weftv1.AttachmentInfo) {
	pod, key := orDash(""), a.GetAttachment()
	if a.GetPod().GetName() != "" {
		pod = a.Pod.Namespace + "/" + a.Pod.Name
	}
	interfaces := a.Interfaces
	if len(interfaces) == 0 {
		interfaces = []*weftv1.InterfaceInfo{{Name: key.GetIfName()}}
	}
	for i, nic := range interfaces {
		wired := []any{nic.Name, orDash(nic.Type), orDash(strings.Join(nic.Addresses, ", ")), orDash(nic.Mac), orDash(nic.Object)}
		if i == 0 {
			g.row(append([]any{pod, shortID(key.GetContainerId()), key.GetNetwork()}, append(wired, c.age(a.Created))...)...)
			continue
		}
		g.row(append([]any{"", "", nic.Network}, wired...)...)
	}
}

// shortID shortens a container id to what runtimes show.
func shortID(id string) string { return fmt.Sprintf("%.12s", id) }
