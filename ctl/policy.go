package ctl

import (
	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func policyCommand(c *client) *cobra.Command {
	req := &operatorv1.PolicyRequest{}
	cmd := &cobra.Command{
		Use:   "policy POD",
		Short: "Explains which network policies allow or deny connections of a pod",
		Long: `Without --from and --to it lists the rules of a pod of this node: the first rule that matches a connection decides; and the packets for which
they decided, by policy, since the dataplane has these rules. Interfaces of the node with the same rules are counted together. With one of them it says
whether a connection is allowed, and which rule of which policy decides, for pods of any node. POD is NAMESPACE/NAME.`,
		Example: `  weftctl policy shop/db
  weftctl policy shop/db --from shop/web --port 5432
  weftctl policy shop/db --to 192.0.2.1 --protocol UDP --port 53`,
		Args:              usage(cobra.ExactArgs(1)),
		ValidArgsFunction: completePods(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Pod = args[0]
			return query(c, operatorv1.OperationsClient.Policy, req, printPolicy)(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.From, "from", "", "source of a connection to the pod: NAMESPACE/NAME or an address")
	flags.StringVar(&req.To, "to", "", "destination of a connection from the pod: NAMESPACE/NAME or an address")
	flags.StringVar(&req.Interface, "interface", "",
		"interface of the pod; default: the main one with --from and --to, else all")
	flags.StringVar(&req.Protocol, "protocol", "TCP", "TCP, UDP or SCTP")
	flags.Uint32Var(&req.Port, "port", 0, "port of the destination")
	cmd.MarkFlagsMutuallyExclusive("from", "to")
	return cmd
}

func printPolicy(p *printer, reply *operatorv1.PolicyReply) {
	if v := reply.Verdict; v != nil {
		answer := "denied"
		if v.Egress.GetAllow() && v.Ingress.GetAllow() {
			answer = "allowed"
		}
		p.printf("%s: %s -> %s\n\n", answer, v.From, v.To)
		g := newGrid("of", "decision", "by")
		g.row("source (egress)", allowed(v.Egress.GetAllow()), v.Egress.GetOrigin())
		g.row("destination (ingress)", allowed(v.Ingress.GetAllow()), v.Ingress.GetOrigin())
		p.printGrid(g, "")
		return
	}
	g := newGrid("interface", "direction", "decision", "remote", "protocol", "ports", "by")
	counts := newGrid("interface", "direction", "decision", "packets", "bytes", "by")
	for _, i := range reply.Interfaces {
		for _, d := range []struct {
			name  string
			rules []*operatorv1.PolicyRule
		}{{"ingress", i.Ingress}, {"egress", i.Egress}} {
			for _, r := range d.rules {
				g.row(i.Interface, d.name, allowed(r.Allow), r.Remote, r.Protocol, orDash(r.Ports), r.Origin)
			}
		}
		for _, n := range i.Counts {
			if n.Packets > 0 {
				counts.row(i.Interface, n.Direction, allowed(n.Allow), n.Packets, n.Bytes, n.Origin)
			}
		}
	}
	p.printGrid(g, "no policy restricts the pod")
	for n, over := range reply.OverLimits {
		if n == 0 {
			p.printf("\nnot applied completely:\n")
		}
		p.printf("  %s\n", oneLine(over))
	}
	switch {
	case len(reply.Interfaces) == 0:
	case reply.CountsError != "":
		p.printf("\ncounters cannot be read: %s\n", oneLine(reply.CountsError))
	default:
		p.printf("\n")
		p.printGrid(counts, "no packets counted")
	}
}

func allowed(is bool) string {
	if is {
		return "allow"
	}
	return "deny"
}
