package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/lint"
)

func lintCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE...",
		Short: "Checks Weft's annotations in manifests offline; exit code 1 if one is invalid",
		Long: `Checks the annotations in manifests (YAML or JSON, "-" is standard input) of pods, workloads (Deployment, DaemonSet, StatefulSet,
Job, CronJob and similar kinds), namespaces and Services. Problems have the text of the error that the pod's ADD or the controller
would report. The command does not check that networks and pools exist in the cluster, or that the namespace may use them.`,
		Example: "  weftctl lint router.yaml\n  helm template . | weftctl lint -",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return lintFiles(c, cmd.InOrStdin(), args) },
	}
}

func lintFiles(c *client, in io.Reader, files []string) error {
	report := lint.Report{Faults: []lint.Fault{}}
	var failures []string
	for _, name := range files {
		if err := lintFile(&report, in, name); err != nil {
			failures = append(failures, err.Error())
		}
	}
	if len(report.Faults) > 0 {
		failures = append(failures, fmt.Sprintf("%s in %s", counted(len(report.Faults), "problem"), counted(report.Pods, "pod")))
	}
	err := c.show(report, func() {
		for _, f := range report.Faults {
			c.printf("%s\n", oneLine(f.String()))
		}
		if len(failures) == 0 {
			c.printf("%s checked, no problems\n", counted(report.Pods, "pod"))
		}
	})
	if err == nil && len(failures) > 0 {
		return errors.New(strings.Join(failures, "; "))
	}
	return err
}

func lintFile(report *lint.Report, in io.Reader, name string) error {
	if name == "-" {
		return report.Read("standard input", in)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return report.Read(name, file)
}
