package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"syscall"
	"time"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
)

// A node that is full: as many pods as kubelet takes, each with a main interface and two more.
const (
	fullNode        = 110 // pods
	replayedExtra   = "x0/veth/many, x1/veth/routed"
	replayedLinks   = 3
	replayRounds    = 3
	replayPatience  = 2 * time.Minute
	replayPollEvery = 20 * time.Millisecond
)

// measureReplay kills the dataplane of a full node and prints how long it takes until pods are served again. The figure holds the
// start of the dataplane; what the agent needs from its connection on is printed beside it.
func measureReplay(ctx context.Context, b *bench, programs string) (err error) {
	n, err := node.New(programs, node.Options{CoolDown: time.Second, Networks: networks(), PodInterface: "veth"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	runtime, err := n.Runtime(os.Stderr)
	if err != nil {
		return err
	}
	pods := dataplane.CrowdOfVeths(fullNode, replayedLinks)
	if pods < fullNode {
		fmt.Fprintf(b.out, "bench: replay of %d pods and not %d: a thread of VPP hangs with 16 veths (docs/vpp.md)\n", pods, fullNode)
	}
	begun := time.Now()
	for i := range pods {
		pod, err := n.NewPod(fmt.Sprintf("replay%d", i))
		if err != nil {
			return err
		}
		pod.Annotations = map[string]string{customInterfaces: replayedExtra}
		if _, err := runtime.Add(ctx, pod); err != nil {
			return fmt.Errorf("ADD of pod %d: %w", i, err)
		}
	}
	fmt.Fprintf(b.out, "replay of %d pods with %d veths each, added in %s\n", pods, replayedLinks, time.Since(begun).Round(time.Millisecond))
	for range replayRounds {
		begun := time.Now()
		if err := syscall.Kill(n.DataplanePID(), syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill the dataplane: %w", err)
		}
		lost, err := awaitLine(ctx, n, lostLine, begun)
		if err != nil {
			return err
		}
		connected, err := awaitLine(ctx, n, connectedLine, lost)
		if err != nil {
			return err
		}
		replayed, err := awaitLine(ctx, n, replayedLine, connected)
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "  after kill -9: connection lost %6.2fs, connected again %6.2fs, replayed %6.2fs; the replay took %.2fs\n",
			lost.Sub(begun).Seconds(), connected.Sub(begun).Seconds(), replayed.Sub(begun).Seconds(), replayed.Sub(connected).Seconds())
		if err := n.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Lines of the agent's log, with their times. The kernel closes the sockets of a dataplane that was killed one after the other,
// so the connection is lost later than the dataplane.
var (
	lostLine      = regexp.MustCompile(`time=(\S+) \S+ msg="dataplane lost"`)
	connectedLine = regexp.MustCompile(`time=(\S+) \S+ msg="dataplane connected"`)
	replayedLine  = regexp.MustCompile(`time=(\S+) \S+ msg="dataplane replayed"`)
)

// awaitLine waits for a line that is not older than since, and gives its time.
func awaitLine(ctx context.Context, n *node.Node, line *regexp.Regexp, since time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, replayPatience)
	defer cancel()
	tick := time.NewTicker(replayPollEvery)
	defer tick.Stop()
	for {
		log, err := os.ReadFile(n.AgentLog())
		if err != nil {
			return time.Time{}, err
		}
		if all := line.FindAllSubmatch(log, -1); len(all) > 0 {
			at, err := time.Parse(time.RFC3339, string(all[len(all)-1][1]))
			if err != nil || !at.Before(since.Truncate(time.Millisecond)) {
				return at, err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for %s in the agent's log: %w", line, ctx.Err())
		}
	}
}
