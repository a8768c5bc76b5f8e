package ctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftnet/weft/k8s/fleet"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// completionTimeout limits the request of a completion: a shell waits for it at each press of Tab.
const completionTimeout = 2 * time.Second

// completion returns a completion of the first argument by the words of list, which are "WORD" or "WORD\tDESCRIPTION".
// Without an agent there are no completions.
func completion(
	c *client, list func(cmd *cobra.Command, a agent, prefix string) ([]string, error),
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a := c.agent
		a.timeout = min(a.timeout, completionTimeout)
		words, err := list(cmd, a, prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var matching []string
		for _, word := range words {
			if strings.HasPrefix(word, prefix) {
				matching = append(matching, word)
			}
		}
		return matching, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeRefs completes the key of an object.
func completeRefs(c *client) cobra.CompletionFunc {
	return completion(c, func(cmd *cobra.Command, a agent, prefix string) (words []string, err error) {
		reply, err := call(cmd.Context(), a, operatorv1.OperationsClient.Objects, &operatorv1.ObjectsRequest{
			Prefix: prefix,
		})
		for _, o := range reply.GetObjects() {
			words = append(words, o.Ref+"\t"+o.Phase)
		}
		return words, err
	})
}

// completePods completes the name of a pod: one with an attachment on this node, or any pod of the cluster if the
// command runs on other nodes.
func completePods(c *client) cobra.CompletionFunc {
	local := completeAttached(c)
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if where, err := c.choose(cmd, args); err != nil || where.local || len(args) > 0 {
			return local(cmd, args, prefix)
		}
		namespace, _, named := strings.Cut(prefix, "/")
		if !named {
			namespace = ""
		}
		return c.completeByCluster(cmd, prefix, func(ctx context.Context, agents *fleet.Fleet) ([]string, error) {
			return agents.PodNames(ctx, namespace)
		})
	}
}

// completeNodes completes --node, which may have several names with commas between them.
func completeNodes(c *client) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		before := prefix[:strings.LastIndexByte(prefix, ',')+1]
		return c.completeByCluster(cmd, prefix,
			func(ctx context.Context, agents *fleet.Fleet) (words []string, err error) {
				nodes, err := agents.Nodes(ctx)
				for _, n := range nodes {
					words = append(words, before+n.Name+"\t"+cmp.Or(n.Absent, "agent "+n.Agent))
				}
				return words, err
			})
	}
}

// completeByCluster completes by words of the API server; without one there are no completions.
func (c *client) completeByCluster(
	cmd *cobra.Command, prefix string, list func(context.Context, *fleet.Fleet) ([]string, error),
) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	api, err := c.cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words, err := list(ctx, fleet.New(api, c.fleet.namespace))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(words, func(word string) bool {
		return !strings.HasPrefix(word, prefix)
	}), cobra.ShellCompDirectiveNoFileComp
}

// completeInterfaces completes the name of a pod, and then the name of one of its interfaces, if the pod has an
// attachment on this node.
func completeInterfaces(c *client) cobra.CompletionFunc {
	pods := completePods(c)
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return pods(cmd, args, prefix)
		}
		where, err := c.choose(cmd, args)
		if err != nil || !where.local || len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		interfaces := completion(c, func(cmd *cobra.Command, a agent, _ string) (words []string, err error) {
			reply, err := call(cmd.Context(), a, operatorv1.OperationsClient.Attachments,
				&operatorv1.AttachmentsRequest{})
			for _, at := range reply.GetAttachments() {
				if podName(at.Pod) != args[0] {
					continue
				}
				for _, i := range at.Interfaces {
					words = append(words, i.Name+"\t"+i.Type)
				}
			}
			return words, err
		})
		return interfaces(cmd, nil, prefix)
	}
}

// completeSelectors completes the name of a pod, or the key of an object.
func completeSelectors(c *client) cobra.CompletionFunc {
	pods := completePods(c)
	refs := completeRefs(c)
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		words, _ := pods(cmd, args, prefix)
		more, directive := refs(cmd, args, prefix)
		return append(words, more...), directive
	}
}

// completeArguments makes commands that read no file offer no files as arguments, unless they have words of their own.
func completeArguments(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !strings.Contains(cmd.Use, "FILE") {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, sub := range cmd.Commands() {
		completeArguments(sub)
	}
}

// completeFlags completes the flags that several commands have, and offers no files for flags with other values.
func completeFlags(c *client, cmd *cobra.Command) {
	completions := map[string]cobra.CompletionFunc{
		"node":      completeNodes(c),
		"pod":       completePods(c),
		"output":    cobra.FixedCompletions(formatWords, cobra.ShellCompDirectiveNoFileComp),
		"namespace": cobra.NoFileCompletions,
		"from":      cobra.NoFileCompletions,
		"to":        cobra.NoFileCompletions,
		"force":     cobra.NoFileCompletions,
	}
	for name, complete := range completions {
		if cmd.LocalFlags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, complete) // exists
		}
	}
	for _, sub := range cmd.Commands() {
		completeFlags(c, sub)
	}
}

// completeAttached completes the name of a pod with an attachment.
func completeAttached(c *client) cobra.CompletionFunc {
	return completion(c, func(cmd *cobra.Command, a agent, _ string) (words []string, err error) {
		reply, err := call(cmd.Context(), a, operatorv1.OperationsClient.Attachments, &operatorv1.AttachmentsRequest{})
		seen := map[string]bool{}
		for _, at := range reply.GetAttachments() {
			if name := podName(at.Pod); at.Pod.GetName() != "" && !seen[name] {
				seen[name] = true
				words = append(words, name)
			}
		}
		return words, err
	})
}

// completeAddresses completes an address in use.
func completeAddresses(c *client) cobra.CompletionFunc {
	return completion(c, func(cmd *cobra.Command, a agent, _ string) (words []string, err error) {
		reply, err := call(cmd.Context(), a, operatorv1.OperationsClient.Addresses, &operatorv1.AddressesRequest{})
		for _, l := range reply.GetLeases() {
			words = append(words, l.Address+"\t"+leaseOwner(l))
		}
		return words, err
	})
}

// completeTransactions completes the number of a transaction.
func completeTransactions(c *client) cobra.CompletionFunc {
	return completion(c, func(cmd *cobra.Command, a agent, _ string) (words []string, err error) {
		reply, err := call(cmd.Context(), a, operatorv1.OperationsClient.Transactions, &operatorv1.TransactionsRequest{
			Last: lastTransactions,
		})
		for _, t := range reply.GetTransactions() {
			words = append(words, strconv.FormatUint(t.Seq, 10)+"\t"+t.Label)
		}
		return words, err
	})
}

// completeEvents completes the number of an event.
func completeEvents(c *client) cobra.CompletionFunc {
	return completion(c, func(cmd *cobra.Command, a agent, _ string) (words []string, err error) {
		events, err := readEvents(cmd.Context(), a, &operatorv1.EventsRequest{Last: lastEvents})
		for _, e := range events {
			words = append(words, fmt.Sprintf("%d\t%s", e.Seq, e.Event))
		}
		return words, err
	})
}
