package ctl

import (
	"fmt"
	"slices"
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
  weftctl attachments -n shop -o name
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
				return fmt.Errorf("pod %s has no attachment on this node; weftctl events --pod %s shows its history",
					req.Pod, req.Pod)
			}
			reply.Attachments = slices.DeleteFunc(reply.Attachments, func(a *operatorv1.AttachmentInfo) bool {
				return c.namespace != "" && a.Pod.GetNamespace() != c.namespace
			})
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
		return fmt.Errorf("%q: a pod is NAMESPACE/NAME, or -n NAMESPACE NAME", name)
	}
	return nil
}

// printAttachments prints a row for each interface. The first row of an attachment also has the attachment's columns;
// the request is the name of the CNI network.
func printAttachments(p *printer, reply *operatorv1.AttachmentsReply) {
	g := newGrid("pod", wide("container"), wide("request"), "network", "interface", "type", "addresses", wide("mac"),
		wide("object"), "age")
	for _, a := range reply.Attachments {
		key := a.GetAttachment()
		interfaces := a.Interfaces
		if len(interfaces) == 0 {
			interfaces = []*operatorv1.InterfaceInfo{{Name: key.GetIfName(), Network: orDash("")}}
		}
		pod := podName(a.Pod)
		container := shortID(key.GetContainerId())
		request := key.GetNetwork()
		age := p.age(a.Created)
		for i, nic := range interfaces {
			if i > 0 {
				pod = ""
				container = ""
				request = ""
				age = ""
			}
			g.row(pod, container, request, networkOf(nic), nic.Name, orDash(nic.Type),
				orDash(strings.Join(nic.Addresses, ", ")), orDash(nic.Mac), orDash(nic.Object), age)
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
