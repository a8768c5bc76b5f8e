package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	k8sclient "github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/connectivity"
	"github.com/weftnet/weft/k8s/fleet"
)

// testFlags are the flags of check.
type testFlags struct {
	image, dns               string
	keep                     bool
	limit, podReady, timeout time.Duration
}

// checkReport is the result of check.
type checkReport struct {
	Passed  int                   `json:"passed"`
	Failed  int                   `json:"failed"`
	Skipped int                   `json:"skipped"`
	Results []connectivity.Result `json:"results"`
	Error   string                `json:"error,omitempty"` // why the check ended early
}

func checkCommand(c *client) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Tests the connectivity of the cluster's pods with probe pods; exit code 1 if a test fails",
		Long: `Tests the connectivity of the cluster's pods with probe pods, on one node or two (--node, at most twice; default: the first nodes
that are ready). It creates a namespace and two custom networks, and pods with eth0, a tap, a veth and, where nodes have memif
devices, a memif. From a pod it probes a pod of the same node and one of the other node, both nodes, and a Service: by ping, TCP,
UDP, and UDP packets of the size of the MTU, over IPv4 and IPv6 as the pods have them.

The command deletes what it created, also when it is interrupted. It needs permission to create namespaces, pods, Services and
CustomNetworks (docs/fleet.md).`,
		Example: "  weftctl check\n  weftctl check --node n1 --node n2 --dns kubernetes.default",
		Args:    usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return check(cmd.Context(), c, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.image, "image", "",
		"image of the probe pods, with weftctl at "+fleet.WeftctlPath+"; default: that of the agents")
	flags.StringVar(&f.dns, "dns", "", "also look up this name in a pod")
	flags.BoolVar(&f.keep, "keep", false, "keep the namespace, the networks and the pods")
	flags.DurationVar(&f.limit, "deadline", 5*time.Minute, "timeout of the whole check, without the deletions")
	flags.DurationVar(&f.podReady, "pod-timeout", time.Minute, "timeout of the start of the pods")
	flags.DurationVar(&f.timeout, "probe-timeout", 3*time.Second, "timeout of a probe")
	return cmd
}

func (f testFlags) validate(c *client) error {
	switch {
	case f.limit <= 0 || f.podReady <= 0 || f.timeout <= 0:
		return usageError{errors.New("check: --deadline, --pod-timeout and --probe-timeout must be positive")}
	case len(c.fleet.nodes) > 2:
		return usageError{
			fmt.Errorf("check: --node is given %d times: the check uses two nodes at most", len(c.fleet.nodes)),
		}
	case c.fleet.all:
		return usageError{errors.New("check: --all-nodes: the check uses two nodes at most: choose them with --node")}
	}
	return nil
}

func check(ctx context.Context, c *client, f testFlags) error {
	if err := f.validate(c); err != nil {
		return err
	}
	connection, err := k8sclient.OperatorContext(c.fleet.kubeconfig, c.fleet.context)
	if err != nil {
		return fmt.Errorf("check needs a cluster: %w", err)
	}
	api, err := k8sclient.New(connection)
	if err != nil {
		return err
	}
	report := checkReport{Results: []connectivity.Result{}}
	limited, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	err = connectivity.Run(limited, connectivity.Config{
		Client: api,
		Fleet:  fleet.New(api, c.fleet.namespace),
		Image:  f.image,
		Nodes:  c.fleet.nodes,
		Keep:   f.keep,
		DNS:    f.dns,
		Probe:  f.timeout, PodReady: f.podReady,
		Progress: func(text string) { fmt.Fprintf(c.err, "%s ...\n", oneLine(text)) },
		Report: func(r connectivity.Result) {
			report.add(r)
			fmt.Fprintf(c.err, "%-7s %s to %s (%s)\n", r.State, r.Test, r.To, r.Path)
		},
	})
	switch {
	case ctx.Err() != nil:
		err = errors.Join(errors.New("interrupted"), withoutContext(err))
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.Join(fmt.Errorf("not finished within %s; set a longer --deadline", f.limit), withoutContext(err))
	}
	if err != nil {
		report.Error = oneLine(err.Error())
	}
	if shown := c.show(report, func() { printReport(&c.printer, report) }); shown != nil {
		return shown
	}
	return report.verdict()
}

// withoutContext returns nil for an error that only says that a context has ended.
func withoutContext(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, one := range several.Unwrap() {
			errs = append(errs, withoutContext(one))
		}
		return errors.Join(errs...)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func (r *checkReport) add(one connectivity.Result) {
	r.Results = append(r.Results, one)
	switch one.State {
	case connectivity.Passed:
		r.Passed++
	case connectivity.Failed:
		r.Failed++
	default:
		r.Skipped++
	}
}

func (r *checkReport) verdict() error {
	switch {
	case r.Failed > 0 && r.Error != "":
		return fmt.Errorf("check: %s failed; %s", counted(r.Failed, "test"), r.Error)
	case r.Failed > 0:
		return fmt.Errorf("check: %s failed", counted(r.Failed, "test"))
	case r.Error != "":
		return fmt.Errorf("check: %s", r.Error)
	}
	return nil
}

// printReport prints a row for each test, and the reasons and next commands below the table. It prints no table if an
// error prevented all tests.
func printReport(p *printer, r checkReport) {
	if len(r.Results) == 0 && r.Error != "" {
		return
	}
	g := newGrid("test", "path", "to", "result", "took")
	for _, one := range r.Results {
		state := p.good(one.State)
		if one.State == connectivity.Failed {
			state = p.bad(one.State)
		}
		g.row(one.Test, one.Path, p.cut(one.To, 26), state, orDash(one.Took))
	}
	p.printGrid(g, "no tests")
	for _, one := range r.Results {
		if one.Reason == "" {
			continue
		}
		p.printf("\n%s, %s, %s: %s\n", one.Test, one.Path, one.To, oneLine(one.Reason))
		if one.Hint != "" {
			p.printf("  next: %s\n", one.Hint)
		}
	}
	p.printf("\n%d passed, %d failed, %d skipped\n", r.Passed, r.Failed, r.Skipped)
}
