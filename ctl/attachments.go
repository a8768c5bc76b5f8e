package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func attachmentsCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:     "attachments [NAMESPACE/NAME]",
		Aliases: []string{"pods"},
		Short:   "Lists the attachments of pods and their interfaces",
		Example: `  weftctl attachments shop/cart
  weftctl attachments -o json | jq -r '.attachments[].pod.name'`,
		Args:              usage(cobra.MatchAll(cobra.MaximumNArgs(1), isPod)),
		ValidArgsFunction: completePods(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &operatorv1.AttachmentsRequest{Pod: strings.Join(args, "")}
			reply, err := call(cmd.Context(), c.agent, operatorv1.OperationsClient.Attachments, req)
			if err != nil {
				return err
			}
			if req.Pod != "" && len(reply.Attachments) == 0 {
				return fmt.Errorf("pod %s has no attachment on this node; weftctl events --pod %s shows its history", req.Pod, req.Pod)
			}
			return c.show(reply, func() { printAttachments(&c.printer, reply) })
		},
	}
}

// isPod checks that the first argument, if any, is NAMESPACE/NAME.
func isPod(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return checkPod(args[0])
}

func checkPod(name string) error {
	if namespace, pod, ok := strings.Cut(name, "/"); !ok || namespace == "" || pod == "" || strings.Contains(pod, "/") {
		return fmt.Errorf("%q: a pod is NAMESPACE/NAME", name)
	}
	return nil
}

// printAttachments prints a row for each interface. The first row of an attachment also has the attachment's columns.
func printAttachments(p *printer, reply *operatorv1.AttachmentsReply) {
	g := newGrid("pod", wide("container"), "network", "interface", "type", "addresses", wide("mac"), wide("object"), "age")
	for _, a := range reply.Attachments {
		key, interfaces := a.GetAttachment(), a.Interfaces
		if len(interfaces) == 0 {
			interfaces = []*operatorv1.InterfaceInfo{{Name: key.GetIfName()}}
		}
		pod, container, network, age := podName(a.Pod), shortID(key.GetContainerId()), key.GetNetwork(), p.age(a.Created)
		for i, nic := range interfaces {
			if i > 0 {
				pod, container, network, age = "", "", networkOf(nic), ""
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
