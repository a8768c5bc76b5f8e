// Command bench measures, on a private node, how long a runtime waits for ADD and DEL, and what pods send to each other.
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

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/bench/packets"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/peers"
)

// parts are what can be measured, in this order.
var parts = []string{"cni", "traffic", "memif", "versus", "replay", "audit"}

func main() {
	n := flag.Int("n", 100, "how many pods")
	programs := flag.String("programs", "bin", "directory of weft-agent, weft-cni, weft-vswitch and weftctl")
	only := flag.String("only", strings.Join(parts, ","), "what is measured, separated by commas; versus, weft-vswitch beside the VPP that WEFT_VPP names, is a part of memif")
	rounds := flag.Int("rounds", 3, "how often traffic is measured")
	duration := flag.Duration("duration", 3*time.Second, "how long traffic between pods is measured each time")
	flag.Parse()
	chosen := strings.Split(*only, ",")
	for _, name := range chosen {
		if !slices.Contains(parts, name) {
			fail(fmt.Errorf("-only %s: there are %s", name, strings.Join(parts, ", ")))
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

// runParts measures those that are chosen.
func (b *bench) runParts(ctx context.Context, programs string, chosen []string) error {
	if slices.Contains(chosen, "cni") && dataplane.Prefix() != "" {
		if err := b.compareWithVPP(ctx, programs); err != nil {
			return err
		}
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(part string) bool { return part == "cni" })
	}
	if slices.Contains(chosen, "cni") || slices.Contains(chosen, "traffic") {
		if err := b.run(ctx, programs, chosen); err != nil {
			return err
		}
	}
	if slices.Contains(chosen, "replay") {
		if err := measureReplay(ctx, b, programs); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	if slices.Contains(chosen, "audit") {
		if err := measureAudit(ctx, b, programs); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	all := slices.Contains(chosen, "memif")
	if !all && !slices.Contains(chosen, "versus") {
		return nil
	}
	return packets.Run(ctx, packets.Config{Out: b.out, Programs: programs, Rounds: b.traffic.rounds, Duration: time.Second, OnlyVersus: !all})
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
	node    *node.Node
}

// contender is a CNI configuration that is measured.
type contender struct {
	name    string
	extra   string // interfaces that its pods ask for, beside the main one
	memifs  int    // how many of these are memifs, which kubelet allocates
	node    *node.Node
	runtime *node.Runtime
	add     latencies
	del     latencies
}

// run measures on a node of its own and takes that away again.
func (b *bench) run(ctx context.Context, programs string, chosen []string) (err error) {
	// Addresses come back fast enough for any number of pods.
	b.node, err = node.New(programs, node.Options{CoolDown: time.Second, Networks: networks()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.node.Close()) }()
	if err := b.node.StartAgent(ctx); err != nil {
		log, _ := os.ReadFile(b.node.AgentLog()) // better without it than not at all
		return fmt.Errorf("%w; its log:\n%s", err, log)
	}
	if slices.Contains(chosen, "cni") {
		if err := b.measureCNI(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(chosen, "traffic") {
		return nil
	}
	return b.measureTraffic(ctx, b.traffic)
}

// measureCNI lets the contenders take turns.
func (b *bench) measureCNI(ctx context.Context) error {
	contenders, err := b.contenders()
	if err != nil {
		return err
	}
	for i := range b.pods {
		for _, c := range contenders {
			if err := c.measure(ctx, fmt.Sprintf("%d", i)); err != nil {
				return err
			}
		}
	}
	return b.report(contenders)
}

// The annotation by which a pod asks for more interfaces, and what a pod with five of them asks for.
const (
	customInterfaces = "contivpp.io/custom-if"
	fiveInterfaces   = "x0/tap/many, x1/veth/many, x2/tap/routed, x3/veth/routed, x4/tap/stub"
)

// contenders are ours, without and with extra interfaces, and the bridge plugin where it can be had.
func (b *bench) contenders() ([]*contender, error) {
	ours, err := b.node.Runtime(os.Stderr)
	if err != nil {
		return nil, err
	}
	list := []*contender{
		{name: "weft-cni", node: b.node, runtime: ours},
		{name: "weft-cni, 5 extra interfaces", extra: fiveInterfaces, node: b.node, runtime: ours},
	}
	plugins, err := peers.FindPlugins()
	if err != nil {
		fmt.Fprintf(b.out, "bench: only weft-cni is measured: %v\n", err)
		return list, nil
	}
	theirs, err := bridgeRuntime(plugins.Dir, b.node.Dir)
	if err != nil {
		return nil, err
	}
	return append(list, &contender{name: "bridge + host-local", node: b.node, runtime: theirs}), nil
}

// measure takes the times of one pod's ADD and DEL; neither the sandbox's making nor kubelet's allocation is counted.
func (c *contender) measure(ctx context.Context, name string) error {
	pod, err := c.node.NewPod(name)
	if err != nil {
		return err
	}
	if c.extra != "" {
		pod.Annotations = map[string]string{customInterfaces: c.extra}
	}
	if c.memifs > 0 {
		if _, err := c.node.Admit(ctx, pod, kubelettest.Container{Name: "vnf", Limit: c.memifs}); err != nil {
			return err
		}
		defer c.node.Forget(pod)
	}
	begun := time.Now()
	if _, err := c.runtime.Add(ctx, pod); err != nil {
		return fmt.Errorf("ADD by %s: %w", c.name, err)
	}
	added := time.Now()
	if err := c.runtime.Del(ctx, pod); err != nil {
		return fmt.Errorf("DEL by %s: %w", c.name, err)
	}
	c.add, c.del = append(c.add, added.Sub(begun)), append(c.del, time.Since(added))
	return pod.Remove()
}
