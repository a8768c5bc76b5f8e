package scripts_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

// timeout is the timeout of everything that a script waits for.
const timeout = time.Minute

// agentCommand:
//
//	agent start [FLAG...]   start the agent and wait until it is ready; later starts keep the flags
//	agent begin [FLAG...]   start it without waiting
//	agent stop              end it with SIGTERM
//	agent kill              end it with SIGKILL
//	agent wait              return when it is ready
func agentCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		usage(ts, "agent start|begin|stop|kill|wait")
	}
	s := on(ts)
	if len(args) > 1 {
		s.flags = args[1:]
	}
	switch args[0] {
	case "start":
		check(ts, neg, s.startAgent(context.Background()))
	case "begin":
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.startAgent(ctx); !errors.Is(err, context.Canceled) {
			check(ts, neg, err)
		}
	case "stop":
		check(ts, neg, s.node.StopAgent())
	case "kill":
		check(ts, neg, s.node.KillAgent())
	case "wait":
		check(ts, neg, s.node.AwaitReady(context.Background()))
	default:
		ts.Fatalf("agent: unknown command %s", args[0])
	}
}

// networkCommand: network NAME TYPE [antiSpoof] [CIDR...] replaces the agent's custom networks by one of type L2 or L3.
func networkCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		usage(ts, "network NAME TYPE [antiSpoof] [CIDR...]")
	}
	n := node.Network{Name: args[0], Type: args[1]}
	cidrs := args[2:]
	if len(cidrs) > 0 && cidrs[0] == "antiSpoof" {
		n.AntiSpoof = true
		cidrs = cidrs[1:]
	}
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		ts.Check(err)
		n.CIDRs = append(n.CIDRs, prefix)
	}
	ts.Check(on(ts).node.SetNetworks([]node.Network{n}))
}

// startAgent starts the agent on a thread in the node's namespace; the agent and its dataplane inherit it. An audit
// repairs at any moment what a script broke on purpose, so the agent makes none unless the script says when.
func (s *stage) startAgent(ctx context.Context) error {
	flags := slices.Concat(s.proxyFlags(), []string{"--audit", "24h"}, s.flags)
	return netns.Do(s.home, func() error { return s.node.StartAgent(ctx, flags...) })
}

// dataplaneCommand:
//
//	dataplane kill   end the dataplane with SIGKILL
//	dataplane wait   return when a new dataplane serves and the agent is ready
func dataplaneCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		usage(ts, "dataplane kill|wait")
	}
	s := on(ts)
	switch args[0] {
	case "kill":
		s.killed = s.node.DataplanePID()
		ts.Check(unix.Kill(s.killed, unix.SIGKILL))
	case "wait":
		ts.Check(eventually(timeout, func() error {
			if pid := s.node.DataplanePID(); pid == 0 || pid == s.killed {
				return errors.New("the new dataplane does not answer")
			}
			return nil
		}))
		ts.Check(s.node.AwaitReady(context.Background()))
	default:
		ts.Fatalf("dataplane: unknown command %s", args[0])
	}
}

// eventually calls try until it returns no error; after limit it returns the last error.
func eventually(limit time.Duration, try func() error) error {
	over := time.NewTimer(limit)
	defer over.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-over.C:
			return fmt.Errorf("after %s: %w", limit, err)
		}
	}
}

// weftctlCommand: weftctl ARG... runs weftctl.
func weftctlCommand(ts *testscript.TestScript, neg bool, args []string) {
	out, err := on(ts).node.Weftctl(context.Background(), args...)
	_, _ = io.WriteString(ts.Stdout(), out)
	if err != nil {
		_, _ = fmt.Fprintln(ts.Stderr(), err)
	}
	check(ts, neg, err)
}

// untilLine runs weftctl until a line of its output matches the pattern.
func (s *stage) untilLine(pattern string, args []string) (out string, err error) {
	line, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return "", err
	}
	err = eventually(timeout, func() (err error) {
		if out, err = s.node.Weftctl(context.Background(), args...); err == nil && !line.MatchString(out) {
			err = fmt.Errorf("no line matches %s", pattern)
		}
		return err
	})
	return out, err
}
