// Command bench measures, on a private node, the latency of ADD and DEL and the traffic between pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weftnet/weft/test/bench/packets"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

// parts are the measurements, in their order.
var parts = []string{
	"cni", "traffic", "memif", "versus", "replay", "replace", "audit", "observe", "policy", "slope", "limits",
}

func main() {
	n := flag.Int("n", 100, "number of pods")
	programs := flag.String("programs", "bin", "directory of weft-agent, weft-cni, weft-vswitch and weftctl")
	only := flag.String("only", strings.Join(parts, ","),
		"comma-separated measurements; versus (weft-vswitch beside the VPP that WEFT_VPP names) is a part of memif")
	rounds := flag.Int("rounds", 3, "number of rounds of traffic measurements")
	duration := flag.Duration("duration", 3*time.Second, "duration of each measurement of traffic between pods")
	flag.Parse()
	chosen := strings.Split(*only, ",")
	for _, name := range chosen {
		if !slices.Contains(parts, name) {
			fail(fmt.Errorf("-only %s: valid values: %s", name, strings.Join(parts, ", ")))
		}
	}
	if *n < 1 || *rounds < 1 {
		fail(errors.New("-n and -rounds must be at least 1"))
	}
	if err := netns.Enter(); err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{out: os.Stdout, pods: *n, traffic: throughput{os.Stdout, *rounds, *duration}}
	if err := b.runParts(ctx, *programs, chosen); err != nil {
		stop()
		fail(err)
	}
}

// runParts runs the selected measurements.
func (b *bench) runParts(ctx context.Context, programs string, chosen []string) error {
	if slices.Contains(chosen, "cni") {
		compare := b.compareCNI
		if dataplane.Prefix() != "" {
			compare = b.compareWithVPP
		}
		if err := compare(ctx, programs); err != nil {
			return err
		}
	}
	if slices.Contains(chosen, "traffic") {
		o := node.Options{CoolDown: time.Second, Networks: networks()}
		if err := withNode(ctx, programs, o, func(n *node.Node) error {
			return b.measureTraffic(ctx, n, b.traffic)
		}); err != nil {
			return err
		}
	}
	if slices.Contains(chosen, "replay") {
		if err := measureReplay(ctx, b, programs); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	if slices.Contains(chosen, "replace") {
		if err := measureReplacement(ctx, b, programs); err != nil {
			return fmt.Errorf("replace: %w", err)
		}
	}
	if slices.Contains(chosen, "audit") {
		if err := measureAudit(ctx, b, programs); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	if slices.Contains(chosen, "observe") {
		if err := measureObserve(ctx, b, programs); err != nil {
			return fmt.Errorf("observe: %w", err)
		}
	}
	if slices.Contains(chosen, "policy") {
		if err := measurePolicy(ctx, b.out, programs); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
	if slices.Contains(chosen, "slope") {
		if err := measureSlope(ctx, b, programs); err != nil {
			return fmt.Errorf("slope: %w", err)
		}
	}
	if slices.Contains(chosen, "limits") {
		if err := measureLimits(ctx, b, programs); err != nil {
			return fmt.Errorf("limits: %w", err)
		}
	}
	all := slices.Contains(chosen, "memif")
	if !all && !slices.Contains(chosen, "versus") {
		return nil
	}
	return packets.Run(ctx, packets.Config{
		Out:        b.out,
		Programs:   programs,
		Rounds:     b.traffic.rounds,
		Duration:   time.Second,
		OnlyVersus: !all,
	})
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// bench is one measurement.
type bench struct {
	out     io.Writer
	pods    int
	traffic throughput
}

// withNode runs f with a node with a ready agent, and then removes the node.
func withNode(ctx context.Context, programs string, o node.Options, f func(*node.Node) error) (err error) {
	n, err := node.New(programs, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.StartAgent(ctx); err != nil {
		log, _ := os.ReadFile(n.AgentLog()) // optional
		return fmt.Errorf("%w; its log:\n%s", err, log)
	}
	return f(n)
}
