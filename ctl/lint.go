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
		Short: "Checks the annotations in manifests offline; exit code 1 if one is invalid",
		Long: `Says what is wrong with annotations in files for kubectl (YAML or JSON, "-" is standard input): of pods, of what makes pods
(Deployment, DaemonSet, StatefulSet, Job, CronJob and their like), and of namespaces, in the words in which the pod's ADD would
refuse it; of Services and of pods as their backends, in those of the controller. Whether the cluster has such networks and
pools, and who may use them, it does not know.`,
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
		wrong = append(wrong, fmt.Sprintf("%s in %s", counted(len(report.Faults), "fault"), counted(report.Pods, "pod")))
	}
	if err := c.showFaults(&report); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	if c.format == "table" {
		c.printf("looked at %s: sound\n", counted(report.Pods, "pod"))
	}
	return nil
}

func (c *client) showFaults(report *lint.Report) error {
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
