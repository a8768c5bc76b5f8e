package churn_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// together is how many networks, each with a pod of three interfaces, are there at a time.
var together = dataplane.Crowd(20, 3)

// warmUp is how many rounds are made, to fill buffers and caches, before memory is judged by the most that there was.
const warmUp = 10

// churn is the node on which all comes and goes.
type churn struct {
	node    *node.Node
	runtime *node.Runtime
	made    int // pods and networks
}

// TestWhatComesAndGoesLeavesNothing makes networks, each with a pod that has a tap or a veth on it, and removes them, again
// and again. Then there is what there was: links, tables, bridge domains, leases, descriptors, and memory. The numbers of
// tables and bridge domains stay low, as those of removed networks are given again.
func TestWhatComesAndGoesLeavesNothing(t *testing.T) {
	netnstest.RequireTap(t)
	t.Setenv("GOGC", "20") // what processes hold is then what they need, and little garbage
	dir := programs.Build(t)
	n, err := node.New(dir, node.Options{CoolDown: 100 * time.Millisecond})
	try(t, err)
	c := &churn{node: n}
	defer c.end(t)
	c.runtime, err = n.Runtime(os.Stderr)
	try(t, err)
	try(t, n.StartAgent(t.Context()))
	before, err := leftovers.Steady(t.Context(), c.places(), settling)
	try(t, err)
	most := memory{}
	for range warmUp {
		c.round(t)
		most.raise(c.memory(t))
	}
	begun := time.Now()
	c.made = 0
	for c.made < *many {
		c.round(t)
	}
	t.Logf("%d pods and networks came and went in %s", c.made, time.Since(begun).Round(time.Millisecond))
	try(t, n.SetNetworks(nil))
	after, err := leftovers.Settle(t.Context(), c.places(), before, settling)
	try(t, err)
	if lines := after.Since(before); len(lines) > 0 {
		t.Errorf("there differ:\n  %s", strings.Join(lines, "\n  "))
	}
	c.judgeMemory(t, most, 2*c.made)
}

func (c *churn) end(t *testing.T) {
	if t.Failed() {
		if content, err := os.ReadFile(c.node.AgentLog()); err == nil {
			t.Logf("the end of the agent's log:\n%s", content[max(0, len(content)-4000):])
		}
	}
	if err := c.node.Close(); err != nil {
		t.Errorf("take the node away: %v", err)
	}
}

// settling is how long all may take until nothing is left.
const settling = time.Minute

func (c *churn) processes() map[string]int {
	return map[string]int{"weft-agent": c.node.AgentPID(), "dataplane": c.node.DataplanePID()}
}

func (c *churn) places() leftovers.Places {
	return leftovers.Places{
		Namespaces: map[string]string{"node": ""}, Directories: c.node.Watched(), Processes: c.processes(),
		Agent: c.node.Socket(), Dataplane: c.node.DataplaneSocket(),
	}
}

// round makes networks in place of those of the round before, and a pod on each; then it removes the pods.
func (c *churn) round(t *testing.T) {
	t.Helper()
	var networks []node.Network
	for i := range together {
		networks = append(networks, c.network(i))
	}
	try(t, c.node.SetNetworks(networks))
	var pods []*node.Pod
	for _, n := range networks {
		pods = append(pods, c.add(t, n))
	}
	c.judgeNumbers(t)
	for _, p := range pods {
		ctx, cancel := context.WithTimeout(t.Context(), cniTimeout)
		try(t, c.runtime.Del(ctx, p))
		cancel()
		try(t, p.Remove())
	}
	c.made += together
}

// network is one that was never there before, with addresses that were.
func (c *churn) network(i int) node.Network {
	kind := "L2"
	if i%2 == 1 {
		kind = "L3"
	}
	return node.Network{Name: fmt.Sprintf("n%d", c.made+i), Type: kind, CIDRs: []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 5, byte(i), 0}), 24), netip.MustParsePrefix(fmt.Sprintf("fd00:5:%d::/64", i)),
	}}
}

// cniTimeout is a runtime's patience with one call of a plugin.
const cniTimeout = time.Minute

// add makes a pod with a tap or a veth on the network, and the other on none, as soon as the agent knows that.
func (c *churn) add(t *testing.T, n node.Network) *node.Pod {
	t.Helper()
	p, err := c.node.NewPod("pod-" + n.Name)
	try(t, err)
	p.Annotations = map[string]string{"contivpp.io/custom-if": "x0/tap/" + n.Name + ", x1/veth/stub"}
	if n.Type == "L2" {
		p.Annotations["contivpp.io/custom-if"] = "x0/veth/" + n.Name + ", x1/tap/stub"
	}
	ctx, cancel := context.WithTimeout(t.Context(), cniTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := c.runtime.Add(ctx, p)
		if err == nil {
			return p
		}
		if !strings.Contains(err.Error(), "there is no network") {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// judgeNumbers expects that no table and no bridge domain has a higher number than so many networks need. Those of a round
// and of the one before may be there at once.
func (c *churn) judgeNumbers(t *testing.T) {
	t.Helper()
	s, err := leftovers.Take(t.Context(), leftovers.Places{Dataplane: c.node.DataplaneSocket()})
	try(t, err)
	for _, line := range s.Since(leftovers.Snapshot{}) {
		fields := strings.Fields(line)
		switch {
		case fields[1] == "table" && number(t, fields[4]) >= 100+2*together:
			t.Errorf("a table has a number that is too high: %s", line)
		case fields[1] == "bridge-domain" && number(t, fields[3]) > 2*together:
			t.Errorf("a bridge domain has a number that is too high: %s", line)
		}
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	try(t, err)
	return n
}
