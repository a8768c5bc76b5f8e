package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

func podCommand(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "pod NAMESPACE/NAME",
		Short: "Tells the story of a pod: requests, events, interfaces, devices, counters, and why it does not run",
		Example: `  weftctl pod shop/cart
  weftctl pod shop/cart -o json | jq -r .cause`,
		Args:              usage(cobra.MatchAll(cobra.ExactArgs(1), isPodName)),
		ValidArgsFunction: completePods(c),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, known, err := readStory(cmd.Context(), c.agent, args[0])
			if err != nil {
				return err
			}
			if s == nil {
				return unknownPod(args[0], known)
			}
			return c.show(s.document(), func() { printStory(&c.printer, s) })
		},
	}
}

func isPodName(_ *cobra.Command, args []string) error {
	namespace, name, _ := strings.Cut(args[0], "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("invalid pod %q: must be NAMESPACE/NAME, or -n NAMESPACE NAME", args[0])
	}
	return nil
}

// unknownPod says that a pod is unknown, and names the nearest known pod.
func unknownPod(name string, known []string) error {
	text := fmt.Sprintf("nothing is known about pod %s: it has no attachment, device or recorded event on this node",
		name)
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("%s; did you mean %s?", text, near)
	}
	return errors.New(text)
}

// nearest returns the name that differs least, or "" if none is similar. It uses the edit distance of cobra's
// suggestions.
func nearest(name string, known []string) string {
	names := &cobra.Command{}
	for _, k := range known {
		names.AddCommand(&cobra.Command{Use: oneLine(k), Run: func(*cobra.Command, []string) {}})
	}
	for distance := 1; distance <= max(len(name)/3, 2); distance++ {
		names.SuggestionsMinimumDistance = distance
		if near := names.SuggestionsFor(name); len(near) > 0 {
			return near[0]
		}
	}
	// in another namespace
	i := slices.IndexFunc(known, func(k string) bool { return strings.HasSuffix(k, name[strings.Index(name, "/"):]) })
	if i < 0 {
		return ""
	}
	return known[i]
}

// readStory reads the agent's records of a pod. Without a record the story is nil, and known lists the names
// of all known pods. The client composes the story: each call returns a snapshot, so the agent needs no method of its
// own, and older agents can answer.
func readStory(ctx context.Context, a agent, name string) (s *story, known []string, err error) {
	s = &story{pod: name}
	names := map[string]bool{}
	err = a.connect(ctx, func(ctx context.Context, api operatorv1.OperationsClient) error {
		if err := s.readAttachments(ctx, api, names); err != nil {
			return err
		}
		if err := s.readEvents(ctx, api, names); err != nil {
			return err
		}
		s.readDevices(ctx, api, names)
		s.readQuarantine(ctx, api, names)
		if !names[name] {
			return nil
		}
		s.readTransactions(ctx, api)
		s.readObjects(ctx, api)
		s.readCounters(ctx, api)
		return nil
	})
	if err != nil || names[name] {
		return s, nil, err
	}
	for k := range names {
		known = append(known, k)
	}
	slices.Sort(known)
	return nil, known, nil
}

// lacks notes that a part of the story could not be read.
func (s *story) lacks(part string, err error) {
	if err != nil {
		s.missing = append(s.missing, part+": "+oneLine(cmp.Or(messageOf(err), err.Error())))
	}
}
