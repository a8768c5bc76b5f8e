package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func attachmentsCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:     "attachments",
		Aliases: []string{"pods"},
		Short:   "Lists the attachments of pods and their interfaces",
		Example: "  weftctl attachments -o json | jq -r '.attachments[].pod.name'",
		Args:    usage(cobra.NoArgs),
		RunE:    query(c, weftv1.OperationsClient.Attachments, &weftv1.AttachmentsRequest{}, printAttachments),
	}
}

// printAttachments prints a row for each interface. The first row of an attachment also has the attachment's columns.
func printAttachments(p *printer, reply *weftv1.AttachmentsReply) {
	g := newGrid("pod", "container", "network", "interface", "type", "addresses", "mac", "object", "age")
	for _, a := range reply.Attachments {
		key, interfaces := a.GetAttachment(), a.Interfaces
		if len(interfaces) == 0 {
			interfaces = []*weftv1.InterfaceInfo{{Name: key.GetIfName()}}
		}
		pod, container, network, age := podName(a.Pod), shortID(key.GetContainerId()), key.GetNetwork(), p.age(a.Created)
		for i, nic := range interfaces {
			if i > 0 {
				pod, container, network, age = "", "", nic.Network, ""
			}
			g.row(pod, container, network, nic.Name, orDash(nic.Type), orDash(strings.Join(nic.Addresses, ", ")), orDash(nic.Mac), orDash(nic.Object), age)
		}
	}
	p.printGrid(g, "no attachments")
}

// shortID returns the first 12 characters of a container ID, as container runtimes print it.
func shortID(id string) string { return fmt.Sprintf("%.12s", id) }

// podName returns NAMESPACE/NAME, or a dash if the pod is unknown.
func podName(p *weftv1.Pod) string {
	if p.GetName() == "" {
		return orDash("")
	}
	return p.Namespace + "/" + p.Name
}
