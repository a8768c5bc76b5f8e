package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/peers"
)

// families are the address families of a comparison, for weft-cni and for the bridge plugin.
type families struct {
	name  string
	pools []node.Pool
	peer  string // ranges and routes of host-local
}

// Each pool has addresses for several bursts, because released ones cool down.
var (
	pool4 = node.Pool{Name: "pods4", Prefix: netip.MustParsePrefix("10.1.0.0/21")}
	pool6 = node.Pool{Name: "pods6", Prefix: netip.MustParsePrefix("fd00:10:1::/64")}
)

var measuredFamilies = []families{
	{"IPv4", []node.Pool{pool4}, `"ranges": [[{"subnet": "10.2.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]`},
	{
		"dual stack", []node.Pool{pool4, pool6},
		`"ranges": [[{"subnet": "10.2.0.0/16"}], [{"subnet": "fd00:10:2::/64"}]], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]`,
	},
}

// contender is a CNI configuration that is measured.
type contender struct {
	name    string
	extra   string // extra interfaces of its pods
	memifs  int    // the number of memifs among these, which kubelet allocates
	node    *node.Node
	runtime *node.Runtime
	add     latencies
	del     latencies
}

// compareCNI measures weft-cni beside the bridge plugin, for each of the families on a new node.
func (b *bench) compareCNI(ctx context.Context, programs string) error {
	for _, f := range measuredFamilies {
		o := node.Options{CoolDown: time.Second, Networks: networks(), Pools: f.pools}
		if err := withNode(ctx, programs, o, func(n *node.Node) error { return b.measureCNI(ctx, n, f) }); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// measureCNI measures pods one at a time, and then bursts of them. The contenders run in turns.
func (b *bench) measureCNI(ctx context.Context, n *node.Node, f families) error {
	contenders, err := b.contenders(n, f)
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
	if err := b.report(fmt.Sprintf("%s, %d pods, one at a time", f.name, b.pods), contenders); err != nil {
		return err
	}
	return b.measureBursts(ctx, contenders, f)
}

// The annotation for extra interfaces, and its value for a pod with five of them.
const (
	customInterfaces = "contivpp.io/custom-if"
	fiveInterfaces   = "x0/tap/many, x1/veth/many, x2/tap/routed, x3/veth/routed, x4/tap/stub"
)

// contenders returns weft-cni, the bridge plugin if it is installed, and weft-cni with extra interfaces.
func (b *bench) contenders(n *node.Node, f families) ([]*contender, error) {
	ours, err := n.Runtime(os.Stderr)
	if err != nil {
		return nil, err
	}
	list := []*contender{{name: "weft-cni", node: n, runtime: ours}}
	plugins, err := peers.FindPlugins()
	if err != nil {
		fmt.Fprintf(b.out, "bench: measuring only weft-cni: %v\n", err)
	} else {
		theirs, err := bridgeRuntime(plugins.Dir, n.Dir, f.peer)
		if err != nil {
			return nil, err
		}
		list = append(list, &contender{name: "bridge + host-local", node: n, runtime: theirs})
	}
	return append(list, &contender{
		name:    "weft-cni, 5 extra interfaces",
		extra:   fiveInterfaces,
		node:    n,
		runtime: ours,
	}), nil
}

// measure measures the ADD and DEL of one pod, without the creation of the sandbox and kubelet's allocation.
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
	added, err := c.timeAdd(ctx, pod)
	if err != nil {
		return err
	}
	deleted, err := c.timeDel(ctx, pod)
	if err != nil {
		return err
	}
	c.add = append(c.add, added)
	c.del = append(c.del, deleted)
	if err := pod.Remove(); err != nil {
		return err
	}
	<-time.After(settleTime)
	return nil
}

// settleTime is the time in which the kernel cleans up a removed sandbox, which slows down later calls.
const settleTime = 100 * time.Millisecond

func (c *contender) timeAdd(ctx context.Context, pod *node.Pod) (time.Duration, error) {
	begun := time.Now()
	if _, err := c.runtime.Add(ctx, pod); err != nil {
		return 0, fmt.Errorf("ADD by %s: %w", c.name, err)
	}
	return time.Since(begun), nil
}

func (c *contender) timeDel(ctx context.Context, pod *node.Pod) (time.Duration, error) {
	begun := time.Now()
	if err := c.runtime.Del(ctx, pod); err != nil {
		return 0, fmt.Errorf("DEL by %s: %w", c.name, err)
	}
	return time.Since(begun), nil
}

// A burst is a full node of pods, with the concurrency of containerd after a node's restart.
const (
	burstPods   = kubeletPods
	burstAtOnce = 32
	burstRounds = 3
)

// measureBursts adds many pods and deletes them, several concurrently.
func (b *bench) measureBursts(ctx context.Context, contenders []*contender, f families) error {
	var bursts []*contender
	for _, c := range contenders {
		if c.extra == "" {
			bursts = append(bursts, &contender{name: c.name, node: c.node, runtime: c.runtime})
		}
	}
	for round := range burstRounds {
		for _, c := range bursts {
			if err := c.burst(ctx, fmt.Sprintf("burst%d", round)); err != nil {
				return err
			}
		}
	}
	return b.report(fmt.Sprintf("%s, %d bursts of %d pods, %d at once", f.name, burstRounds, burstPods, burstAtOnce),
		bursts)
}

// burst measures the ADDs of many pods, and then their DELs.
func (c *contender) burst(ctx context.Context, name string) (err error) {
	var pods []*node.Pod
	defer func() {
		for _, p := range pods {
			err = errors.Join(err, p.Remove())
		}
	}()
	for i := range burstPods {
		pod, err := c.node.NewPod(fmt.Sprintf("%s-%d", name, i))
		if err != nil {
			return err
		}
		pods = append(pods, pod)
	}
	added, err := atOnce(ctx, pods, c.timeAdd)
	if err != nil {
		return err
	}
	deleted, err := atOnce(ctx, pods, c.timeDel)
	c.add = append(c.add, added...)
	c.del = append(c.del, deleted...)
	return err
}

// atOnce calls timed for all pods, burstAtOnce of them concurrently.
func atOnce(
	ctx context.Context, pods []*node.Pod, timed func(context.Context, *node.Pod) (time.Duration, error),
) (latencies, error) {
	times := make(latencies, len(pods))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(burstAtOnce)
	for i, p := range pods {
		g.Go(func() (err error) {
			times[i], err = timed(ctx, p)
			return err
		})
	}
	return times, g.Wait()
}

// bridgeConflist configures the bridge plugin for the same result as weft-cni: an address of each family and default
// routes.
const bridgeConflist = `{
  "cniVersion": "1.0.0", "name": "bridge",
  "plugins": [{
    "type": "bridge", "bridge": "bench0", "isGateway": true,
    "ipam": {"type": "host-local", "dataDir": %q, %s}
  }]
}`

// bridgeRuntime executes the plugins in dir and keeps their state in state, with host-local's ranges.
func bridgeRuntime(dir, state, ranges string) (*node.Runtime, error) {
	conflist := fmt.Sprintf(bridgeConflist, filepath.Join(state, "host-local"), ranges)
	return node.NewRuntime([]byte(conflist), []string{dir}, filepath.Join(state, "bridge-cache"), os.Stderr)
}
