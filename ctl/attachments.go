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
		Short:   "Lists the attachments of pods and their interfaces",
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
		c.printGrid(g, "no attachments")
	})
}

// attachmentRows adds a row for each interface. Only the first row has the columns of the attachment.
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
		columns := []any{nic.Name, orDash(nic.Type), orDash(strings.Join(nic.Addresses, ", ")), orDash(nic.Mac), orDash(nic.Object)}
		if i == 0 {
			g.row(append([]any{pod, shortID(key.GetContainerId()), key.GetNetwork()}, append(columns, c.age(a.Created))...)...)
			continue
		}
		g.row(append([]any{"", "", nic.Network}, columns...)...)
	}
}

// shortID returns the first 12 characters of a container ID, as container runtimes print it.
func shortID(id string) string { return fmt.Sprintf("%.12s", id) }
