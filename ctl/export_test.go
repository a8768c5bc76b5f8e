package ctl

import (
	"io"

	"github.com/spf13/cobra"
)

// CommandPaths lists the paths of all commands that run.
func CommandPaths() []string {
	var paths []string
	var list func(cmd *cobra.Command)
	list = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Runnable() {
				paths = append(paths, pathOf(sub))
			}
			list(sub)
		}
	}
	list(rootCommand(&client{printer: printer{out: io.Discard}}))
	return paths
}
