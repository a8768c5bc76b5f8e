package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"syscall"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
)

// fullNode has as many pods as kubelet or the dataplane allows, each with a main interface and two more.
type fullNode struct {
	pods   int
	main   string // type of the main interface
	extra  string // value of the annotation with the two others
	memifs int    // per pod
}

// kubeletPods is kubelet's default of maxPods.
const kubeletPods = 110

// fullNodeHere returns the full node of this dataplane. VPP has a low limit of veths and none of memifs and taps.
func fullNodeHere() fullNode {
	switch {
	case dataplane.Prefix() == "":
		return fullNode{kubeletPods, "veth", "x0/veth/many, x1/veth/routed", 0}
	case dataplane.HasTaps():
		return fullNode{kubeletPods, "tap", "x0/memif/many, x1/memif/routed", 2}
	}
	return fullNode{dataplane.Crowd(kubeletPods, 1), "veth", "x0/memif/many, x1/memif/routed", 2}
}

// String returns the benchmark's name in the output.
func (f fullNode) String() string {
	return fmt.Sprintf("replay of %d pods with 3 interfaces each (main interface %s, %s)", f.pods, f.main, f.extra)
}

// settled is longer than the time in which the agent attributes the end of a dataplane to the previous replay.
const settled = 2 * time.Second

const (
	replayRounds    = 3
	replayPatience  = 20 * time.Minute // an emulated machine is slow
	replayPollEvery = 20 * time.Millisecond
)

// measureReplay kills the dataplane of a full node and prints the time until pods are served again. The figure includes
// the start of the dataplane; the agent's part, from its connection on, is printed beside it.
func measureReplay(ctx context.Context, b *bench, programs string) (err error) {
	full := fullNodeHere()
	n, err := node.New(programs, node.Options{
		CoolDown: time.Second, Networks: networks(), PodInterface: full.main, Memifs: full.pods * full.memifs,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, n.LogTails(40))
		}
		err = errors.Join(err, n.Close())
	}()
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	runtime, err := n.Runtime(os.Stderr)
	if err != nil {
		return err
	}
	begun := time.Now()
	for i := range full.pods {
		if _, _, err := full.add(ctx, n, runtime, fmt.Sprintf("replay%d", i)); err != nil {
			return fmt.Errorf("pod %d: %w", i, err)
		}
	}
	fmt.Fprintf(b.out, "%s, added in %s\n", full, time.Since(begun).Round(time.Millisecond))
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
		fmt.Fprintf(b.out,
			"  after kill -9: connection lost %6.2fs, connected again %6.2fs, replayed %6.2fs; the replay took %.2fs\n",
			lost.Sub(begun).Seconds(), connected.Sub(begun).Seconds(), replayed.Sub(begun).Seconds(),
			replayed.Sub(connected).Seconds())
		if err := n.AwaitReady(ctx); err != nil {
			return err
		}
		<-time.After(settled)
	}
	return nil
}

// add adds a pod and returns its main interface; kubelet knows it if it has memifs.
func (f fullNode) add(
	ctx context.Context, n *node.Node, runtime *node.Runtime, name string,
) (p *node.Pod, main node.Link, err error) {
	if p, err = n.NewPod(name); err != nil {
		return nil, main, err
	}
	p.Annotations = map[string]string{customInterfaces: f.extra}
	if f.memifs > 0 {
		if _, err := n.Admit(ctx, p, kubelettest.Container{Name: "vnf", Limit: f.memifs}); err != nil {
			return nil, main, err
		}
	}
	result, err := runtime.Add(ctx, p)
	if err != nil {
		return nil, main, err
	}
	links, err := node.Links(result)
	if err != nil {
		return nil, main, err
	}
	return p, links[0], nil
}

// Lines of the agent's log, with their times. The kernel closes the sockets of a killed dataplane one by one, so the
// connection is lost later than the dataplane.
var (
	lostLine      = regexp.MustCompile(`time=(\S+) \S+ msg="dataplane lost"`)
	connectedLine = regexp.MustCompile(`time=(\S+) \S+ msg="dataplane connected"`)
	replayedLine  = regexp.MustCompile(`time=(\S+) \S+ msg="dataplane replayed"`)
	partlyLine    = regexp.MustCompile(`time=(\S+) \S+ msg="replay incomplete, repairing".*`)
)

// awaitLine waits for a line not older than since, and returns its time. It returns an error if the agent logs an
// incomplete replay.
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
		if text, _, err := lastMatch(log, partlyLine, since); text != nil || err != nil {
			return time.Time{}, errors.Join(fmt.Errorf("line in the agent's log: %s", text), err)
		}
		if text, at, err := lastMatch(log, line, since); text != nil || err != nil {
			return at, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for %s in the agent's log: %w", line, ctx.Err())
		}
	}
}

// lastMatch returns the last matching line and its time, or nil if that is older than since.
func lastMatch(log []byte, line *regexp.Regexp, since time.Time) (text []byte, at time.Time, err error) {
	all := line.FindAllSubmatch(log, -1)
	if len(all) == 0 {
		return nil, at, nil
	}
	last := all[len(all)-1]
	if at, err = time.Parse(time.RFC3339, string(last[1])); err != nil || at.Before(since.Truncate(time.Millisecond)) {
		return nil, at, err
	}
	return last[0], at, nil
}
