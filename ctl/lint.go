package ctl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/lint"
)

func lintCommand(c *client) *cobra.Command {
	mode := lint.Modes()[0]
	cmd := &cobra.Command{
		Use:   "lint FILE|DIRECTORY...",
		Short: "Checks what Weft reads in manifests offline; exit code 1 if something is invalid",
		Long: `Checks manifests (YAML or JSON, "-" is standard input; of a directory the files .yaml, .yml and .json, with
its subdirectories): the annotations and memif limits of pods and workloads (Deployment, DaemonSet,
StatefulSet, Job, CronJob and similar kinds), the annotations of virtual machines of KubeVirt, namespaces
and Services, CustomNetworks, IPPools, ExternalInterfaces, WeftConfigs, the NetworkAttachmentDefinitions of
Weft, and the memif parameters of ResourceClaims, ResourceClaimTemplates and DeviceClasses. Problems have the
text and the code of the error that the pod's ADD, the agent or the controller would report. References to
networks, pools, claims and definitions that are not in the files are notes, because the cluster may have
them. Kinds and annotations of Contiv-VPP that Weft does not have are problems with what replaces them. Other
objects are not checked, and counted.`,
		Example: "  weftctl lint router.yaml\n  weftctl lint deploy/\n  helm template . | weftctl lint -",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(lint.Modes(), mode) {
				return usageError{
					fmt.Errorf("lint: --cni-mode %s: expected %s", mode, strings.Join(lint.Modes(), ", ")),
				}
			}
			report := lint.Report{Mode: mode, Faults: []lint.Fault{}, Notes: []lint.Fault{}}
			return lintFiles(c, &report, cmd.InOrStdin(), args)
		},
	}
	cmd.Flags().StringVar(&mode, "cni-mode", mode,
		"mode of Weft in the cluster: primary, chained or delegate; with the last two, eth0 is another plugin's")
	return cmd
}

func lintFiles(c *client, report *lint.Report, in io.Reader, names []string) error {
	var failures []string
	for _, name := range names {
		files, err := manifestsIn(name)
		if err != nil {
			failures = append(failures, err.Error())
		}
		for _, file := range files {
			if err := lintFile(report, in, file); err != nil {
				failures = append(failures, strings.Split(err.Error(), "\n")...)
			}
		}
	}
	report.Finish()
	checked := counted(report.Pods, "pod") + " and " + counted(report.Objects, "other object")
	if report.Objects == 0 {
		checked = counted(report.Pods, "pod")
	}
	if len(report.Faults) > 0 {
		failures = append(failures, fmt.Sprintf("%s in %s", counted(len(report.Faults), "problem"), checked))
	}
	err := c.show(report, func() {
		for _, f := range report.Faults {
			c.printf("%s\n", oneLine(f.String()))
		}
		for _, f := range report.Notes {
			c.printf("note: %s\n", oneLine(f.String()))
		}
		if len(failures) == 0 {
			c.printf("%s checked, no problems\n", checked)
		}
		if report.Skipped > 0 {
			c.printf("%s not checked: not of Weft, and without a pod\n", counted(report.Skipped, "object"))
		}
	})
	if err == nil && len(failures) > 0 {
		return errors.New(strings.Join(failures, "; "))
	}
	return err
}

// manifestsIn lists the manifests in a directory; of a file its name.
func manifestsIn(name string) (files []string, _ error) {
	if info, err := os.Stat(name); name == "-" || err != nil || !info.IsDir() {
		return []string{name}, nil //nolint:nilerr // reading the file reports the error
	}
	err := filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			files = append(files, path)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no manifests: no file ends in .yaml, .yml or .json", name)
	}
	return files, err
}

func lintFile(report *lint.Report, in io.Reader, name string) error {
	if name == "-" {
		return report.Read("standard input", in)
	}
	file, err := os.Open(name)
	if err != nil {
		return located(err)
	}
	defer file.Close()
	return report.Read(name, file)
}
