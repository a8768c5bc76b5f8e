package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// echoEvery is the interval of the echo requests that measure an outage: each lost one adds an interval.
const echoEvery = 2 * time.Millisecond

// replacement is a full node whose dataplane is replaced.
type replacement struct {
	*node.Node
	active  *node.Vswitch // nil if the agent starts the dataplane
	started int
	from    *node.Pod
	to      node.Link
}

// variant is a way to replace a dataplane.
type variant struct {
	name    string
	replace func(context.Context) error
}

// measureReplacement replaces the dataplane of a full node under traffic, and prints the outages between two pods. VPP
// has no standby: the agent starts the next one when the former has ended.
func measureReplacement(ctx context.Context, b *bench, programs string) (err error) {
	external := dataplane.Prefix() == ""
	full := fullNodeHere()
	n, err := node.New(programs, node.Options{
		CoolDown:     time.Second,
		Networks:     networks(),
		PodInterface: full.main,
		External:     external,
		Memifs:       full.pods * full.memifs,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	r := &replacement{Node: n}
	variants := r.signals()
	if external {
		variants = r.takeovers()
		if r.active, err = r.begin(ctx); err != nil {
			return err
		}
	}
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	if err := r.fill(ctx, full); err != nil {
		return err
	}
	fmt.Fprintf(b.out,
		"replacement of the dataplane of %d pods with 3 interfaces each (%s, %s): outage between two pods\n", full.pods,
		full.main, full.extra)
	for range replayRounds {
		for _, v := range variants {
			outage, err := r.outage(ctx, v.replace)
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			fmt.Fprintf(b.out, "  %-17s %5d ms\n", v.name, outage.Milliseconds())
		}
	}
	return nil
}

// takeovers are the ways to replace a weft-vswitch.
func (r *replacement) takeovers() []variant {
	return []variant{
		{"restart", r.restart},
		{"standby, handover", func(ctx context.Context) error { return r.takeOver(ctx, syscall.SIGTERM) }},
		{
			"standby, replay",
			func(ctx context.Context) error { return r.takeOver(ctx, syscall.SIGTERM, "--handover=false") },
		},
		{"standby, kill -9", func(ctx context.Context) error { return r.takeOver(ctx, syscall.SIGKILL) }},
	}
}

// signals are the ways to end a dataplane that the agent starts again.
func (r *replacement) signals() []variant {
	end := func(signal syscall.Signal) func(context.Context) error {
		return func(context.Context) error { return syscall.Kill(r.DataplanePID(), signal) }
	}
	return []variant{{"restart", end(syscall.SIGTERM)}, {"kill -9", end(syscall.SIGKILL)}}
}

// fill adds the pods.
func (r *replacement) fill(ctx context.Context, full fullNode) error {
	runtime, err := r.Runtime(os.Stderr)
	if err != nil {
		return err
	}
	for i := range full.pods {
		p, main, err := full.add(ctx, r.Node, runtime, fmt.Sprintf("replace%d", i))
		if err != nil {
			return fmt.Errorf("pod %d: %w", i, err)
		}
		if r.to = main; i == 0 {
			r.from = p
		}
	}
	return nil
}

// begin starts a weft-vswitch and waits until it serves or waits as a standby.
func (r *replacement) begin(ctx context.Context, flags ...string) (*node.Vswitch, error) {
	r.started++
	v, err := r.StartVswitch(fmt.Sprintf("vswitch-%d", r.started), flags...)
	if err != nil {
		return nil, err
	}
	return v, r.AwaitVswitch(ctx, v)
}

// restart replaces the dataplane without a standby.
func (r *replacement) restart(ctx context.Context) (err error) {
	if err := r.active.End(syscall.SIGTERM); err != nil {
		return err
	}
	r.active, err = r.begin(ctx)
	return err
}

// takeOver ends the active dataplane while a standby waits.
func (r *replacement) takeOver(ctx context.Context, signal syscall.Signal, flags ...string) error {
	next, err := r.begin(ctx, append(flags, "--standby")...)
	if err != nil {
		return err
	}
	former := r.active
	r.active = next
	return former.End(signal)
}

// outage returns the time of lost echo requests.
func (r *replacement) outage(ctx context.Context, replace func(context.Context) error) (time.Duration, error) {
	to := r.to.Bare()[0]
	p, err := ping.Open(r.from.Netns, to)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if _, err := p.Reach(ctx, to); err != nil {
		return 0, err
	}
	echoes, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		ping.Loss
		err error
	}
	streamed := make(chan result, 1)
	go func() {
		loss, err := p.Stream(echoes, to, echoEvery)
		streamed <- result{loss, err}
	}()
	begun := time.Now()
	err = replace(ctx)
	if err == nil {
		_, err = awaitLine(ctx, r.Node, replayedLine, begun)
	}
	if err == nil {
		err = r.AwaitReady(ctx)
	}
	<-time.After(settled)
	stop()
	s := <-streamed
	return time.Duration(s.Sent-s.Answered) * echoEvery, errors.Join(err, s.err)
}
