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
	"syscall"
	"time"

	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

func main() {
	n := flag.Int("n", 100, "how many pods")
	programs := flag.String("programs", "bin", "directory of weft-agent, weft-cni, weft-vswitch and weftctl")
	plugins := flag.String("plugins", "", "directory of the bridge and host-local plugins; default: where distributions put them")
	rounds := flag.Int("rounds", 3, "how often traffic is measured; 0: not at all")
	duration := flag.Duration("duration", 3*time.Second, "how long traffic is measured each time")
	flag.Parse()
	if err := netns.Enter(); err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{out: os.Stdout, pods: *n, traffic: throughput{os.Stdout, *rounds, *duration}}
	if err := b.run(ctx, *programs, *plugins); err != nil {
		stop()
		fail(err)
	}
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
	runtime *node.Runtime
	add     latencies
	del     latencies
}

// run measures on a node of its own and takes that away again.
func (b *bench) run(ctx context.Context, programs, plugins string) (err error) {
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
	if err := b.measureCNI(ctx, plugins); err != nil {
		return err
	}
	if b.traffic.rounds == 0 {
		return nil
	}
	return b.measureTraffic(ctx, b.traffic)
}

// measureCNI lets the contenders take turns.
func (b *bench) measureCNI(ctx context.Context, plugins string) error {
	contenders, err := b.contenders(plugins)
	if err != nil {
		return err
	}
	for i := range b.pods {
		for _, c := range contenders {
			if err := b.measure(ctx, c, fmt.Sprintf("%d", i)); err != nil {
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

// contenders are ours, without and with extra interfaces, and the bridge plugin where it is installed.
func (b *bench) contenders(plugins string) ([]*contender, error) {
	ours, err := b.node.Runtime(os.Stderr)
	if err != nil {
		return nil, err
	}
	list := []*contender{{name: "weft-cni", runtime: ours}, {name: "weft-cni, 5 extra interfaces", extra: fiveInterfaces, runtime: ours}}
	dir := findPlugins(plugins)
	if dir == "" {
		fmt.Fprintln(b.out, "bench: the bridge and host-local plugins are not installed (Debian: containernetworking-plugins); only weft-cni is measured")
		return list, nil
	}
	theirs, err := bridgeRuntime(dir, b.node.Dir)
	if err != nil {
		return nil, err
	}
	return append(list, &contender{name: "bridge + host-local", runtime: theirs}), nil
}

// measure takes the times of one pod's ADD and DEL; the sandbox's own making is not counted.
func (b *bench) measure(ctx context.Context, c *contender, name string) error {
	pod, err := b.node.NewPod(name)
	if err != nil {
		return err
	}
	if c.extra != "" {
		pod.Annotations = map[string]string{customInterfaces: c.extra}
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
