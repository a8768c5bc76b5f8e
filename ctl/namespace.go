package ctl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// podFlags are the flags with pods as values.
var podFlags = []string{"pod", "from", "to"}

// takesPod reports whether the first argument of a command may be a pod.
func takesPod(cmd *cobra.Command) bool {
	return slices.Contains(podCommands, pathOf(cmd)) || pathOf(cmd) == "policy"
}

// inNamespace makes the commands below cmd complete the names of pods with --namespace, as kubectl does: -n shop cart
// is shop/cart.
func (c *client) inNamespace(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		c.inNamespace(sub)
	}
	run := cmd.RunE
	check := cmd.Args
	if run == nil || !cmd.HasParent() {
		return
	}
	if takesPod(cmd) {
		cmd.ValidArgsFunction = c.completedIn(cmd.ValidArgsFunction)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		args, err := c.qualified(cmd, args)
		if err != nil || check == nil {
			return err
		}
		return check(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args, err := c.qualified(cmd, args)
		if err != nil {
			return err
		}
		return run(cmd, args)
	}
}

// completedIn completes names of pods of the namespace of --namespace without it.
func (c *client) completedIn(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if c.namespace == "" {
			return complete(cmd, args, prefix)
		}
		within := c.namespace + "/"
		if len(args) > 0 {
			return complete(cmd, append([]string{within + strings.TrimPrefix(args[0], within)}, args[1:]...), prefix)
		}
		words, directive := complete(cmd, args, within+prefix)
		for i := range words {
			words[i] = strings.TrimPrefix(words[i], within)
		}
		return words, directive
	}
}

// qualified returns the arguments with the namespace in the name of the pod, and completes the flags that name pods.
func (c *client) qualified(cmd *cobra.Command, args []string) ([]string, error) {
	if c.namespace == "" {
		return args, nil
	}
	named := false
	for _, name := range podFlags {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		named = true
		pod, err := c.qualify(f.Value.String())
		if err == nil {
			err = f.Value.Set(pod)
		}
		if err != nil {
			return nil, err
		}
	}
	if takesPod(cmd) && len(args) > 0 {
		pod, err := c.qualify(args[0])
		if err != nil {
			return nil, err
		}
		return append([]string{pod}, args[1:]...), nil
	}
	if !named && pathOf(cmd) != "attachments" { // which lists the attachments of a namespace
		return nil, usageError{fmt.Errorf("--namespace %s: %s names no pod", c.namespace, pathOf(cmd))}
	}
	return args, nil
}

// qualify returns a pod with its namespace. A name that has one must be in the namespace of the flag; an address has
// no namespace.
func (c *client) qualify(name string) (string, error) {
	if _, err := netip.ParseAddr(name); err == nil {
		return name, nil
	}
	switch namespace, _, has := strings.Cut(name, "/"); {
	case !has:
		return c.namespace + "/" + name, nil
	case namespace != c.namespace:
		return "", usageError{fmt.Errorf("--namespace %s: %s is not in this namespace", c.namespace, name)}
	}
	return name, nil
}
