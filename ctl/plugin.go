package ctl

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// pluginName is how an operator starts the plugin of kubectl.
const pluginName = "kubectl weft"

// IsPlugin reports whether a program with this path is the plugin of kubectl: kubectl runs kubectl-weft as kubectl
// weft.
func IsPlugin(program string) bool {
	name := filepath.Base(program)
	return name == "kubectl-weft" || name == completer
}

// completer is the program that kubectl runs to complete the arguments of kubectl weft.
const completer = "kubectl_complete-weft"

// Arguments returns the command line of a program with this path: kubectl completes the arguments of a plugin by a
// program of its own, which is a link to the plugin. kubectl's completion for bash, zsh and fish does so.
func Arguments(program string, args []string) []string {
	if filepath.Base(program) == completer {
		return append([]string{"__complete"}, args...)
	}
	return args
}

// asPlugin makes the help of the commands name the plugin.
func asPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: pluginName}
	root.Short = "Inspects and controls the Weft agents of a cluster"
	root.Long = `Inspects and controls the Weft agents of a cluster, through the API server.

A command runs on the nodes of --node or --all-nodes, or on the node of the pod that it names. Otherwise it runs on all nodes if it
only reads.`
	var rename func(*cobra.Command)
	rename = func(cmd *cobra.Command) {
		cmd.Example = strings.ReplaceAll(cmd.Example, "weftctl", pluginName)
		for _, sub := range cmd.Commands() {
			rename(sub)
		}
	}
	rename(root)
	root.Example = `  kubectl weft status                     the nodes, networks and pools of the cluster
  kubectl weft attachments --node n1      the attachments of a node
  kubectl weft events -f                  follow the events of all nodes
  kubectl weft counters --pod NS/NAME     the counters of a pod's interfaces
  kubectl weft check                      test the connectivity of pods`
}

// endWithInput makes the context of a command end with its standard input, if wanted: a program in a container does not
// notice otherwise that its operator is gone.
func endWithInput(cmd *cobra.Command, wanted bool) {
	if !wanted {
		return
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	cmd.SetContext(ctx)
	go func() { // ends with the program
		_, _ = io.Copy(io.Discard, cmd.InOrStdin())
		cancel()
	}()
}
