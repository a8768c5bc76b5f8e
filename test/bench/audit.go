package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/test/node"
)

const (
	auditedPods   = 250
	auditRounds   = 4               // number of measured periods
	auditEach     = 5 * time.Second // the measured period
	auditUsual    = time.Minute     // the default period
	auditAddsBusy = 4               // concurrent ADDs
)

// measureAudit prints the cost of the audit of a node with many pods: the processor time of agent and dataplane with a
// short period, minus that of the same time without an audit, per period. The aim is 1 % of a core with the default
// period.
func measureAudit(ctx context.Context, b *bench, programs string) (err error) {
	n, err := node.New(programs, node.Options{Pools: []node.Pool{
		{Name: "pods4", Prefix: netip.MustParsePrefix("10.1.0.0/22")}, {
			Name:   "pods6",
			Prefix: netip.MustParsePrefix("fd00:10:1::/64"),
		},
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	if err := addAudited(ctx, n); err != nil {
		return err
	}
	without, err := costWith(ctx, n, 24*time.Hour)
	if err != nil {
		return err
	}
	with, err := costWith(ctx, n, auditEach)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "audit of %d pods (main interface only), processor time of one period\n", auditedPods)
	var all time.Duration
	for i, name := range []string{"agent", "dataplane"} {
		cost := (with[i] - without[i]) / auditRounds
		all += cost
		fmt.Fprintf(b.out, "  %-10s %8s\n", name, cost.Round(time.Millisecond))
	}
	share := float64(all) / float64(auditUsual)
	fmt.Fprintf(b.out, "  share of a core with the default period of %s: %.2f %%, %.2f of the aim (1 %%)\n", auditUsual,
		100*share, share/0.01)
	return nil
}

func addAudited(ctx context.Context, n *node.Node) error {
	runtime, err := n.Runtime(os.Stderr)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(auditAddsBusy)
	for i := range auditedPods {
		p, err := n.NewPod(fmt.Sprintf("audit%d", i))
		if err != nil {
			return err
		}
		group.Go(func() error {
			_, err := runtime.Add(ctx, p)
			return err
		})
	}
	return group.Wait()
}

// costWith restarts the agent and returns the processor time of agent and dataplane in the measured time.
func costWith(ctx context.Context, n *node.Node, period time.Duration) (cost [2]time.Duration, err error) {
	if err := errors.Join(n.StopAgent(), n.StartAgent(ctx, "--audit="+period.String())); err != nil {
		return cost, err
	}
	<-time.After(auditEach) // work of the start has ended
	pids := [2]int{n.AgentPID(), n.DataplanePID()}
	var before [2]time.Duration
	for i, pid := range pids {
		if before[i], err = processorTime(pid); err != nil {
			return cost, err
		}
	}
	<-time.After(auditRounds * auditEach)
	for i, pid := range pids {
		after, err := processorTime(pid)
		if err != nil {
			return cost, err
		}
		cost[i] = after - before[i]
	}
	return cost, nil
}

// clockTick is the unit of times in proc(5) on all architectures of Weft.
const clockTick = 10 * time.Millisecond

// processorTime returns a process's time in user space and in the kernel.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err, err2)
}
