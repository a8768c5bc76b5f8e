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

func (c *client) lintCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE...",
		Short: "Checks Weft's annotations in manifests offline; exit code 1 if one is invalid",
		Long: `Checks the annotations in manifests (YAML or JSON, "-" is standard input) of pods, workloads (Deployment, DaemonSet, StatefulSet,
Job, CronJob and similar kinds), namespaces and Services. Problems have the text of the error that the pod's ADD or the controller
would report. The command does not check that networks and pools exist in the cluster, or that the namespace may use them.`,
		Example: "  weftctl lint router.yaml\n  helm template . | weftctl lint -",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.lint(cmd.InOrStdin(), args) },
	}
}

func (c *client) lint(in io.Reader, files []string) error {
	report := lint.Report{Faults: []lint.Fault{}}
	var wrong []string
	for _, name := range files {
		if err := lintFile(&report, in, name); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(report.Faults) > 0 {
		wrong = append(wrong, fmt.Sprintf("%s in %s", counted(len(report.Faults), "problem"), counted(report.Pods, "pod")))
	}
	if err := c.showProblems(&report); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	if c.format == "table" {
		c.printf("%s checked, no problems\n", counted(report.Pods, "pod"))
	}
	return nil
}

func (c *client) showProblems(report *lint.Report) error {
	if c.format != "table" {
		return c.document(report)
	}
	for _, f := range report.Faults {
		c.printf("%s\n", oneLine(f.String()))
	}
	return nil
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
