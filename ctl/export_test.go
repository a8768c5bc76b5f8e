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

// SchemaOfOutput returns the schema of the documents that a command line prints; nil: it prints none.
func SchemaOfOutput(plugin bool, args []string) map[string]any {
	c := &client{plugin: plugin}
	root := rootCommand(c)
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil
	}
	cmd.InitDefaultHelpFlag()
	if cmd.ParseFlags(rest) != nil || c.format != "json" || isSet(cmd, "help") {
		return nil
	}
	if f := cmd.Flags().Lookup("write"); f != nil && f.Value.String() == standardOutput {
		return nil
	}
	where, err := c.choose(cmd, cmd.Flags().Args())
	if err != nil {
		return nil
	}
	schema, err := c.schemaOf(cmd, where.all || len(where.nodes) > 1)
	if err != nil {
		return nil
	}
	return schema
}
