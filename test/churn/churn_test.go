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
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// together is the number of networks that exist at a time, each with a pod of three interfaces.
var together = dataplane.Crowd(20, 3)

// warmUp is the number of rounds before the first measurement; they fill buffers and caches.
const warmUp = 10

// churn is the node with the pods and networks.
type churn struct {
	node    *node.Node
	runtime *node.Runtime
	made    int // pods and networks
}

// The test adds and deletes networks, each with a pod that has a tap or a veth on it. Then it compares links, tables,
// bridge domains, leases, descriptors, and memory with the beginning. Numbers of tables and bridge domains stay low,
// because they are reused.
func TestAddedAndDeletedPodsAndNetworksLeaveNothing(t *testing.T) {
	netnstest.RequireTap(t)
	t.Setenv("GOGC", "20") // little garbage, so that RSS is close to the live heap
	dir := programs.Build(t)
	n, err := node.New(dir, node.Options{CoolDown: 100 * time.Millisecond})
	must.Succeed(t, err)
	c := &churn{node: n}
	defer c.end(t)
	c.runtime, err = n.Runtime(os.Stderr)
	must.Succeed(t, err)
	must.Succeed(t, n.StartAgent(t.Context()))
	before, err := leftovers.Steady(t.Context(), c.places(), settling)
	must.Succeed(t, err)
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
	t.Logf("%d pods and networks were added and deleted in %s", c.made, time.Since(begun).Round(time.Millisecond))
	must.Succeed(t, n.SetNetworks(nil))
	after, err := leftovers.Settle(t.Context(), c.places(), before, settling)
	must.Succeed(t, err)
	if lines := after.Since(before); len(lines) > 0 {
		t.Errorf("differences:\n  %s", strings.Join(lines, "\n  "))
	}
	c.checkMemory(t, most, 2*c.made)
}

func (c *churn) end(t *testing.T) {
	if t.Failed() {
		t.Log(c.node.LogTails(100))
	}
	if err := c.node.Close(); err != nil {
		t.Errorf("remove the node: %v", err)
	}
}

// settling is how long resources may take to go away.
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

// round replaces the networks of the previous round, and adds and deletes a pod on each.
func (c *churn) round(t *testing.T) {
	t.Helper()
	var networks []node.Network
	for i := range together {
		networks = append(networks, c.network(i))
	}
	must.Succeed(t, c.node.SetNetworks(networks))
	var pods []*node.Pod
	for _, n := range networks {
		pods = append(pods, c.add(t, n))
	}
	c.checkNumbers(t)
	for _, p := range pods {
		ctx, cancel := context.WithTimeout(t.Context(), cniTimeout)
		must.Succeed(t, c.runtime.Del(ctx, p))
		cancel()
		must.Succeed(t, p.Remove())
	}
	c.made += together
}

// network returns a network with a new name and with addresses that are reused.
func (c *churn) network(i int) node.Network {
	kind := "L2"
	if i%2 == 1 {
		kind = "L3"
	}
	return node.Network{Name: fmt.Sprintf("n%d", c.made+i), Type: kind, CIDRs: []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 5, byte(i), 0}), 24),
		netip.MustParsePrefix(fmt.Sprintf("fd00:5:%d::/64", i)),
	}}
}

// cniTimeout is the timeout of one call of a plugin.
const cniTimeout = time.Minute

// add adds a pod with one interface on the network and one on the stub network, as soon as the agent knows the network.
func (c *churn) add(t *testing.T, n node.Network) *node.Pod {
	t.Helper()
	p, err := c.node.NewPod("pod-" + n.Name)
	must.Succeed(t, err)
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
		if !strings.Contains(err.Error(), "unknown network") {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// checkNumbers fails if a table or a bridge domain has a higher number than the networks of two rounds need.
func (c *churn) checkNumbers(t *testing.T) {
	t.Helper()
	s, err := leftovers.Take(t.Context(), leftovers.Places{Dataplane: c.node.DataplaneSocket()})
	must.Succeed(t, err)
	for _, line := range s.Since(leftovers.Snapshot{}) {
		fields := strings.Fields(line)
		switch {
		case fields[1] == "table" && number(t, fields[4]) >= 100+2*together:
			t.Errorf("the number of a table is too high: %s", line)
		case fields[1] == "bridge-domain" && number(t, fields[3]) > 2*together:
			t.Errorf("the number of a bridge domain is too high: %s", line)
		}
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must.Succeed(t, err)
	return n
}
