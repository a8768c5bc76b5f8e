package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// maxPlanned bounds the file of a plan, in bytes: the agent's bound for external configuration.
const maxPlanned = 1 << 20

func planCommand(c *client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Shows what a change would do, and changes nothing",
		Long: `Shows what a change would do. The agent decides it with the same code as the change itself, and undoes the decision: it commits, stores
and records nothing. A plan holds for the state of now; it assumes that no operation fails.

Operations are listed in their order. Operations with the same step do not depend on each other.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(planPodCommand(c), planConfigCommand(c), planExternalCommand(c))
	return cmd
}

func planExternalCommand(c *client) *cobra.Command {
	var file string
	var isRemoval bool
	cmd := &cobra.Command{
		Use:   "external NAME -f FILE|-",
		Short: "Plans the replacement of a source of external configuration",
		Long: `Plans what weftctl configure NAME -f FILE, or the file NAME in the agent's directory of external configuration ("file NAME"), would
change: operations in their order, invalid values that would be skipped, and objects that would wait. --remove plans the end of the source.`,
		Example: "  weftctl plan external operator -f routes.yaml\n  weftctl plan external operator --remove",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &operatorv1.PlanExternalRequest{Source: args[0]}
			switch {
			case isRemoval && file != "", !isRemoval && file == "":
				return usageError{errors.New("plan external: exactly one of --file and --remove is required")}
			case !isRemoval:
				var err error
				if req.Document, err = readPlanned(cmd.InOrStdin(), file); err != nil {
					return err
				}
			}
			reply, err := callPlanning(cmd.Context(), c.agent, operatorv1.PlanningClient.PlanExternal, req)
			if err != nil {
				return err
			}
			return showPlan(c, reply, "external configuration "+args[0])
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the values, YAML: key -> value; - reads from stdin")
	cmd.Flags().BoolVar(&isRemoval, "remove", false, "plan the removal of the source")
	return cmd
}

func planPodCommand(c *client) *cobra.Command {
	var file string
	var isEdit bool
	cmd := &cobra.Command{
		Use:   "pod -f FILE|-",
		Short: "Plans the ADD of a pod on this node, or an edit of its annotations",
		Long: `Plans what the ADD of a pod with this manifest would create on this node: its interfaces with networks and addresses, the devices that it
needs, and the operations in their order; or prints the error, with its code, that the ADD would return. The addresses are not reserved. The file may also have the ResourceClaims,
ResourceClaimTemplates and DeviceClasses of the pod's memifs.

With --edit the pod runs on this node, and the plan is what an edit of its annotations to those of the manifest would add and remove.`,
		Example: "  weftctl plan pod -f pod.yaml\n  kubectl get pod web -o yaml | weftctl plan pod -f -\n" +
			"  kubectl annotate pod web --overwrite --dry-run=server -o yaml contivpp.io/custom-if=t1/tap/blue | weftctl plan pod --edit -f -",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{errors.New("plan pod: --file is required")}
			}
			manifest, err := readPlanned(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			reply, err := callPlanning(cmd.Context(), c.agent, operatorv1.PlanningClient.PlanPod,
				&operatorv1.PlanPodRequest{Manifest: manifest, Edit: isEdit})
			if err != nil {
				return err
			}
			what := "the ADD"
			if isEdit {
				what = "the edit"
			}
			return showPlan(c, reply, what)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "",
		"manifest of a Pod, YAML or JSON, with its claims; - reads from stdin")
	cmd.Flags().BoolVar(&isEdit, "edit", false, "plan an edit of the annotations of a pod that runs on this node")
	return cmd
}

func planConfigCommand(c *client) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "config -f FILE|-",
		Short: "Plans another configuration file of the agent",
		Long: `Plans the replacement of the agent's configuration file: which settings change, which of them take effect at the next start of the
agent only, and which objects would change then. Flags and environment variables of the running agent take precedence over the file. An
invalid file is refused as at a start.`,
		Example: "  weftctl plan config -f agent.yaml",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{errors.New("plan config: --file is required")}
			}
			document, err := readPlanned(cmd.InOrStdin(), file)
			if err != nil {
				return err
			}
			reply, err := callPlanning(cmd.Context(), c.agent, operatorv1.PlanningClient.PlanConfig,
				&operatorv1.PlanConfigRequest{Document: string(document)})
			if err != nil {
				return err
			}
			return showPlan(c, reply, "the configuration")
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "configuration file of the agent; - reads from stdin")
	return cmd
}

// readPlanned reads a file of at most maxPlanned bytes; - is stdin.
func readPlanned(in io.Reader, name string) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	document, err := io.ReadAll(io.LimitReader(in, maxPlanned+1))
	if err == nil && len(document) > maxPlanned {
		err = fmt.Errorf("it has more than %d bytes", maxPlanned)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return document, nil
}

// showPlan prints a plan. A change that would be refused is the error of the command.
func showPlan(c *client, reply *operatorv1.PlanReply, what string) error {
	if err := c.show(reply, func() { printPlan(&c.printer, reply) }); err != nil || reply.Error == "" {
		return err
	}
	text := "would be refused: " + oneLine(reply.Error)
	if reply.Code != 0 {
		text = fmt.Sprintf("would be refused with code %d: %s", reply.Code, oneLine(reply.Error))
	}
	return fmt.Errorf("%s %s", what, text)
}

func printPlan(p *printer, reply *operatorv1.PlanReply) {
	printPlannedInterfaces(p, reply)
	printSettings(p, reply)
	if len(reply.Operations) > 0 {
		g := newGrid("step", "operation", "object", "because")
		for _, op := range reply.Operations {
			g.row(op.Step, op.Verb, printable(op.Ref), printable(op.Why))
			for _, f := range op.Fields {
				g.row("", "", "  "+orDash(printable(f.Path))+": "+side(f.Applied)+" -> "+side(f.Desired), "")
			}
		}
		p.printGrid(g, "")
	}
	list := func(title string, lines []string, style func(string) string) {
		for _, line := range lines {
			p.printf("%s: %s\n", title, style(oneLine(line)))
		}
	}
	plain := func(s string) string { return s }
	list("device", reply.Devices, plain)
	list("waits", reply.Waiting, plain)
	list("skipped", reply.Skipped, p.bad)
	list("note", reply.Notes, plain)
	if reply.Error == "" {
		p.printf("plan: %s, nothing was changed\n", counted(len(reply.Operations), "operation"))
	}
}

func printPlannedInterfaces(p *printer, reply *operatorv1.PlanReply) {
	if len(reply.Interfaces) == 0 {
		return
	}
	g := newGrid("interface", "type", "network", "mtu", "addresses")
	for _, i := range reply.Interfaces {
		g.row(printable(i.Name), i.Type, printable(networkOf(i)), i.Mtu, orDash(strings.Join(i.Addresses, " ")))
	}
	p.printGrid(g, "")
	p.printf("\n")
}

func printSettings(p *printer, reply *operatorv1.PlanReply) {
	if len(reply.Settings) == 0 {
		return
	}
	g := newGrid("setting", "now", "then", "takes effect")
	for _, s := range reply.Settings {
		when := "at once"
		if s.Restart {
			when = "after a restart"
		}
		g.row(printable(s.Key), side(s.Old), side(s.New), when)
	}
	p.printGrid(g, "")
	p.printf("\n")
}
