package ipnet_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

var (
	cluster4 = netaddr.Pool{Name: "cluster4", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Blocks: true}
	cluster6 = netaddr.Pool{Name: "cluster6", Prefix: netip.MustParsePrefix("2001:db8:1::/64"), Blocks: true}
)

// inCluster is the configuration of a node that allocates addresses of blocks.
func inCluster(pools ...netaddr.Pool) ipnet.Config {
	return ipnet.Config{Networks: networks.Config{
		Pools:   pools,
		Blocks:  true,
		Tunnels: networks.Tunnels{Tunnel: networks.TunnelVXLAN4},
	}}
}

func block(network, prefix string, withheld ...string) netaddr.Block {
	return netaddr.Block{Network: network, Prefix: netip.MustParsePrefix(prefix), Withheld: addrs(withheld...)}
}

func (n *node) give(t rapid.TB, blocks ...netaddr.Block) *pod.SetBlocks {
	t.Helper()
	ev := &pod.SetBlocks{Blocks: blocks, From: "test"}
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return ev
}

// mainAddress returns the first address of a pod's main interface.
func mainAddress(a *pod.Attachment) string { return a.Interfaces[0].Addresses[0].Addr().String() }

func TestValuesOfANodeWithBlocks(t *testing.T) {
	n := nodeOf(t, inCluster(cluster4, cluster6)).run(t)
	bare := n.committer.Values()
	golden(t, "blocks-none", list(t, bare))
	ev := n.give(t, block("default", "10.1.5.0/26"), block("", "2001:db8:1::40/122"))
	if len(ev.Refused)+len(ev.Draining) > 0 {
		t.Fatal(ev.Refused, ev.Draining)
	}
	first := n.committer.Values()
	golden(t, "blocks-dual", list(t, first)+list(t, n.saver.Bucket("blocks")))

	a := n.add(t, sandbox("a"))
	if got := mainAddress(a); got != "10.1.5.1" {
		t.Errorf("address of the pod: %s", got)
	}
	withPod := list(t, n.committer.Values())
	changes := len(n.committer.Changes())
	n.give(t, block("", "10.1.6.0/26"), block("", "10.1.5.0/26"), block("", "2001:db8:1::40/122"),
		block("", "2001:db8:1::80/122"))
	if keys := n.keysSince(changes); len(keys) > 0 {
		t.Errorf("another block changes %v", keys)
	}
	again := n.restarted(t)
	if got := list(t, again.committer.Values()); got != withPod {
		t.Errorf("after a restart\n%s\nwant\n%s", got, withPod)
	}
	for i := range 62 {
		a = again.add(t, sandbox(fmt.Sprint("p", i)))
	}
	if got := mainAddress(a); got != "10.1.5.63" {
		t.Errorf("the last address of the first block is %s", got)
	}
	if got := mainAddress(again.add(t, sandbox("next"))); got != "10.1.6.0" {
		t.Errorf("the first address of the next block is %s", got)
	}
}

func TestBlockIsReleasedWhenNoAddressOfItIsInUse(t *testing.T) {
	n := nodeOf(t, inCluster(cluster4)).run(t)
	n.give(t, block("", "10.1.5.0/30"), block("", "10.1.6.0/30"))
	for i := range 3 {
		n.add(t, sandbox(fmt.Sprint("p", i)))
	}
	ev := sandbox("a")
	if got := mainAddress(n.add(t, ev)); got != "10.1.6.0" {
		t.Fatalf("address of the pod: %s", got)
	}
	own := block("", "10.1.5.0/30")
	drains := func(want bool) {
		t.Helper()
		if got := n.give(t, own).Draining; (len(got) == 1) != want || want && got[0].Prefix.String() != "10.1.6.0/30" {
			t.Errorf("draining %v, want %t", got, want)
		}
		n = n.restarted(t)
	}
	drains(true) // an address is in use
	if err := n.refuses(t, sandbox("b")); !strings.Contains(err.Error(),
		"pool exhausted: all addresses of pool cluster4 are held, 4 by this node") {
		t.Errorf("error %v", err)
	}
	n.delete(t, ev)
	drains(true) // an address is cooling down
	n.now = n.now.Add(coolDown)
	drains(false)
	if _, there := n.Networks.Allocator("").Block(netip.MustParsePrefix("10.1.6.0/30")); there ||
		len(n.kept().Blocks) != 1 {
		t.Errorf("kept %v", n.kept().Blocks)
	}
	for _, l := range n.kept().Leases {
		if strings.HasPrefix(l.Address.String(), "10.1.6.") {
			t.Errorf("kept lease %v", l)
		}
	}
	if got := n.give(t).Draining; len(got) != 1 {
		t.Errorf("the block of the node's own address is released; draining %v", got)
	}
	n.give(t, own, block("", "10.1.6.0/30"))
	if got := mainAddress(n.add(t, sandbox("c"))); got != "10.1.6.0" {
		t.Errorf("address of a returned block: %s", got)
	}
}

func TestBlocksOfAnUnknownNetworkWaitForIt(t *testing.T) {
	for _, kind := range []pod.NetworkType{pod.L2, pod.L3} {
		t.Run(string(kind), func(t *testing.T) {
			n := nodeOf(t, inCluster(cluster4)).run(t)
			blocks := []netaddr.Block{block("", "10.1.5.0/26"), block("blue", "10.5.0.128/26")}
			if got := n.give(t, blocks...).Refused["blue/10.5.0.128/26"]; !strings.Contains(got,
				`there is no network "blue"`) {
				t.Errorf("refused %q", got)
			}
			n = n.restarted(t)
			n.set(t, vni(custom("blue", kind, "10.5.0.0/24"), 500))
			if got := n.give(t, blocks...).Refused; len(got) > 0 {
				t.Errorf("refused %v", got)
			}
			a := n.add(t, asking("a", "x1/tap/blue", ""))
			want := map[pod.NetworkType]string{
				pod.L2: "10.5.0.128/24 via 10.5.0.1",
				pod.L3: "10.5.0.128/32 via 10.5.0.1",
			}[kind]
			if i := a.Interfaces[1]; fmt.Sprintf("%s via %s", i.Addresses[0], i.Gateways[0]) != want {
				t.Errorf("%+v, want %s", i, want)
			}
			n = n.restarted(t)
			if got := n.add(t,
				asking("b", "x1/tap/blue", "")).Interfaces[1].Addresses[0].Addr().String(); got != "10.5.0.129" {
				t.Errorf("after a restart %s", got)
			}
		})
	}
}

func TestRefusedBlocksAreNamed(t *testing.T) {
	n := nodeOf(t, inCluster(cluster4, netaddr.Pool{Name: "own", Prefix: netip.MustParsePrefix("10.7.0.0/24")})).run(t)
	ev := n.give(t, block("", "10.1.5.0/26"), block("", "10.1.5.0/28"), block("", "10.9.0.0/26"),
		block("", "10.7.0.0/26"))
	want := map[string]string{
		"default/10.1.5.0/28": "overlaps", "default/10.9.0.0/26": "in no pool",
		"default/10.7.0.0/26": "this node owns the whole prefix",
	}
	for name, part := range want {
		if !strings.Contains(ev.Refused[name], part) {
			t.Errorf("%s refused with %q, want %q", name, ev.Refused[name], part)
		}
	}
	if len(ev.Refused) != len(want) || len(n.kept().Blocks) != 1 {
		t.Errorf("refused %v, kept %v", ev.Refused, n.kept().Blocks)
	}
}

func TestPodRequestsAnAddressOfAnotherNode(t *testing.T) {
	n := nodeOf(t, inCluster(cluster4)).run(t)
	if err := n.refuses(t, sandbox("early")); !strings.Contains(err.Error(), "this node has no block of it") {
		t.Errorf("error %v", err)
	}
	n.give(t, block("", "10.1.5.0/26", "10.1.5.9"))
	for address, part := range map[string]string{
		"10.1.9.9": "in no open block of this node",
		"10.1.5.9": "in no open block of this node",
		"10.1.5.0": "held by node",
	} {
		ev := sandbox("a")
		ev.Requested.Addresses = prefixes(address)
		if err := n.refuses(t, ev); !strings.Contains(err.Error(), part) {
			t.Errorf("%s: error %v, want %q", address, err, part)
		}
	}
	if lent := n.Networks.Allocator("default").Withhold(netip.MustParsePrefix("10.1.5.0/26"), netip.Addr{},
		""); lent.String() != "10.1.5.1" {
		t.Errorf("lent %s", lent)
	}
	if got := mainAddress(n.add(t, sandbox("a"))); got != "10.1.5.2" {
		t.Errorf("address of the pod: %s", got)
	}
	n.Networks.Allocator("default").Return(netip.MustParseAddr("10.1.5.1"))
	if b, _ := n.Networks.Allocator("default").Block(netip.MustParsePrefix("10.1.5.0/26")); b.Stats.Used != 1 ||
		b.Stats.Cooling != 1 || b.Stats.Free != 60 {
		t.Errorf("block %+v", b)
	}
}

// Durable steps fail: the changes of these events are kept, and the next durable step saves them.
func TestChangesOfBlocksAndNodesAreKeptWhenTheDurableStepFails(t *testing.T) {
	n := nodeOf(t, inCluster(cluster4, cluster6)).run(t)
	n.set(t, vni(custom("blue", pod.L3, "10.5.0.0/24"), 500))
	n.give(t, block("", "10.1.5.0/26"), block("", "10.1.6.0/26"))
	n.join(t, self(), other(2, "10.1.9.0/26"))
	n.saver.Before(func(context.Context, []eventloop.Saved) error { return errors.New("the disk is full") })
	for _, ev := range []eventloop.Event{
		&pod.SetBlocks{
			Blocks: []netaddr.Block{
				block("", "10.1.5.0/26"), block("", "2001:db8:1::40/122"), block("blue", "10.5.0.0/26"),
			},
		},
		&pod.SetNodes{Self: self(), Nodes: []pod.Node{with(other(3, "10.1.10.0/26"), "blue", "10.5.0.64/26")}},
	} {
		if _, err := n.loop.Do(context.Background(), ev); err == nil {
			t.Fatalf("%s: no error, although it is not durable", ev)
		}
	}
	n.saver.Before(nil)
	n.join(t, self(), with(other(3, "10.1.10.0/26"), "blue", "10.5.0.64/26"))
	values := n.committer.Values()
	for _, key := range []string{
		wire.NeighbourKey("weft-host", netip.MustParseAddr("2001:db8:1::40")), wire.InterfaceKey("weft-vx-default-3"),
		wire.InterfaceKey("weft-vx-blue-3"),
	} {
		if values[key] == nil {
			t.Errorf("%s is missing", key)
		}
	}
	again := n.restarted(t)
	if got, want := list(t, again.committer.Values()), list(t, values); got != want {
		t.Errorf("after a restart\n%s\nwant\n%s", got, want)
	}
	if b, there := again.Networks.Allocator("").Block(netip.MustParsePrefix("10.1.6.0/26")); there {
		t.Errorf("the released block is back: %+v", b)
	}
}
