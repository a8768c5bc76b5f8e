package ctl

import (
	"github.com/spf13/cobra"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

func policyCommand(c *client) *cobra.Command {
	req := &weftv1.PolicyRequest{}
	cmd := &cobra.Command{
		Use:   "policy POD",
		Short: "Explains which network policies allow or deny connections of a pod",
		Long: `Without --from and --to it lists the rules of a pod of this node: the first rule that matches a connection decides. With one of them it says
whether a connection is allowed, and which rule of which policy decides, for pods of any node. POD is NAMESPACE/NAME.`,
		Example: `  weftctl policy shop/db
  weftctl policy shop/db --from shop/web --port 5432
  weftctl policy shop/db --to 192.0.2.1 --protocol UDP --port 53`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Pod = args[0]
			return query(c, weftv1.OperationsClient.Policy, req, printPolicy)(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.From, "from", "", "source of a connection to the pod: NAMESPACE/NAME or an address")
	flags.StringVar(&req.To, "to", "", "destination of a connection from the pod: NAMESPACE/NAME or an address")
	flags.StringVar(&req.Interface, "interface", "", "interface of the pod; default: the main one with --from and --to, else all")
	flags.StringVar(&req.Protocol, "protocol", "TCP", "TCP, UDP or SCTP")
	flags.Uint32Var(&req.Port, "port", 0, "port of the destination")
	cmd.MarkFlagsMutuallyExclusive("from", "to")
	return cmd
}

func printPolicy(p *printer, reply *weftv1.PolicyReply) {
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
	for _, i := range reply.Interfaces {
		for _, d := range []struct {
			name  string
			rules []*weftv1.PolicyRule
		}{{"ingress", i.Ingress}, {"egress", i.Egress}} {
			for _, r := range d.rules {
				g.row(i.Interface, d.name, allowed(r.Allow), r.Remote, r.Protocol, orDash(r.Ports), r.Origin)
			}
		}
	}
	p.printGrid(g, "no policy restricts the pod")
}

func allowed(is bool) string {
	if is {
		return "allow"
	}
	return "deny"
}
