package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/internal/version"
	"github.com/weftnet/weft/k8s/chart"
	k8sclient "github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/preflight"
)

// installFlags are the flags of install.
type installFlags struct {
	assignments, files      []string
	dryRun, offline, anyway bool
	kubectl                 string
}

func installCommand(c *client) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Installs Weft in the cluster without Helm, or upgrades it; --dry-run prints the objects",
		Long: `Renders the Helm chart of this version with changed values, checks the nodes, and applies the objects with kubectl (kubectl apply
--server-side). Applied again, it upgrades Weft or changes its configuration. It deletes nothing: objects that the values no longer
have remain. Do not use it for an installation by Helm.

The nodes are checked through the API server, before anything changes. With --dry-run the objects are printed, the requirements and
problems are on standard error, and nothing changes.`,
		Example: `  weftctl install --dry-run | less
  weftctl install --set image.name=registry.example/weft
  weftctl install --values my-values.yaml --set controller.replicas=2
  weftctl install --dry-run --offline >weft.yaml`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return install(cmd.Context(), c, f, cmd.InOrStdin()) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.assignments, "set", nil,
		"change a value of the chart, KEY=VALUE, as for helm; can be repeated")
	flags.StringArrayVarP(&f.files, "values", "f", nil,
		"file of YAML with values of the chart, \"-\" is standard input; can be repeated")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the objects, and apply nothing")
	flags.BoolVar(&f.offline, "offline", false, "with --dry-run: do not check the nodes")
	flags.BoolVar(&f.anyway, "ignore-problems", false, "apply even if nodes do not meet the requirements")
	flags.StringVar(&f.kubectl, "kubectl", "kubectl", "the kubectl to apply with")
	return cmd
}

func install(ctx context.Context, c *client, f installFlags, in io.Reader) error {
	if f.offline && !f.dryRun {
		return usageError{errors.New("install: --offline needs --dry-run")}
	}
	values, err := f.read(in)
	if err != nil {
		return usageError{fmt.Errorf("install: %w", err)}
	}
	packed, err := chart.Load(version.Number())
	if err != nil {
		return err
	}
	objects, notes, err := packed.Manifest(c.fleet.namespace, values)
	if err != nil {
		return usageError{fmt.Errorf("install: %w", err)}
	}
	settings, err := packed.Settings(values)
	if err != nil {
		return err
	}
	problems := checkNodes(ctx, c, f, wanted(settings))
	switch {
	case f.dryRun:
		_, err := io.WriteString(c.out, objects)
		return err
	case len(problems) > 0 && !f.anyway:
		return errors.New("nothing was applied; --ignore-problems applies anyway")
	}
	if err := f.apply(ctx, c, objects); err != nil {
		return err
	}
	fmt.Fprint(c.err, "\n", notes)
	return nil
}

// read merges the values. The namespace is created unless they say otherwise.
func (f installFlags) read(in io.Reader) (map[string]any, error) {
	documents := [][]byte{[]byte("namespace: {create: true}")}
	for _, name := range f.files {
		read := func() ([]byte, error) { return os.ReadFile(name) }
		if name == "-" {
			read = func() ([]byte, error) { return io.ReadAll(in) }
		}
		text, err := read()
		if err != nil {
			return nil, err
		}
		documents = append(documents, text)
	}
	return chart.Values(documents, f.assignments)
}

// wanted returns the requirements that depend on values. The schema has checked their types.
func wanted(v chart.Settings) preflight.Wants {
	w := preflight.Wants{
		PodCIDRs: v.CNI.Mode == "primary" && v.Config.Kubernetes.Addresses == "podCIDR" && v.Config.Pools == nil,
	}
	if pages := v.VPP.Hugepages; v.Config.Dataplane.Type == "vpp" && v.VPP.Enabled && pages.Size != "none" {
		w.Hugepages = pages.Size + "i"
		w.Amount = pages.Amount
	}
	return w
}

// checkNodes prints the requirements and the problems of the nodes, and returns the problems.
func checkNodes(ctx context.Context, c *client, f installFlags, w preflight.Wants) (problems []string) {
	reported, others := w.Requirements()
	checked := "not checked"
	if !f.offline {
		count, lacking, err := reach(ctx, c, w)
		problems = lacking
		checked = fmt.Sprintf("%s checked", counted(count, "node"))
		if err != nil {
			problems = []string{oneLine(err.Error())}
			checked = "the nodes could not be checked"
		}
	}
	fmt.Fprintf(c.err, "requirements of nodes (%s):\n", checked)
	for _, text := range reported {
		fmt.Fprintf(c.err, "  %s\n", text)
	}
	fmt.Fprintln(c.err, "requirements that the API server does not report:")
	for _, text := range others {
		fmt.Fprintf(c.err, "  %s\n", text)
	}
	for _, text := range problems {
		fmt.Fprintf(c.err, "PROBLEM  %s\n", text)
	}
	return problems
}

func reach(ctx context.Context, c *client, w preflight.Wants) (count int, problems []string, err error) {
	connection, err := k8sclient.OperatorContext(c.fleet.kubeconfig, c.fleet.context)
	if err != nil {
		return 0, nil, err
	}
	api, err := k8sclient.New(connection)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.agent.timeout)
	defer cancel()
	return preflight.Check(ctx, api, w)
}

// apply applies the objects with kubectl, and prints its output.
func (f installFlags) apply(ctx context.Context, c *client, objects string) error {
	args := []string{"apply", "--server-side", "--field-manager=weftctl", "-f", "-"}
	for name, value := range map[string]string{"--kubeconfig": c.fleet.kubeconfig, "--context": c.fleet.context} {
		if value != "" {
			args = append(args, name+"="+value)
		}
	}
	cmd := exec.CommandContext(ctx, f.kubectl, args...)
	cmd.Stdin = strings.NewReader(objects)
	cmd.Stdout = c.out
	cmd.Stderr = c.err
	switch err := cmd.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("apply the objects: %w: pipe the output of --dry-run to another program", err)
	case err != nil:
		return fmt.Errorf("apply the objects: %s: %w", f.kubectl, err)
	}
	return nil
}
