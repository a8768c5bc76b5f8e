package ipnet_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// setPools replaces the pools of the node and returns the refused changes with reasons.
func (n *node) setPools(t testing.TB, pools ...netaddr.Pool) map[string]string {
	t.Helper()
	ev := &pod.SetPools{Pools: pools, From: "test"}
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return ev.Refused
}

func TestPoolsThatAreSetEqualThoseOfTheConfiguration(t *testing.T) {
	configured := nodeOf(t, inCluster(cluster4, cluster6)).run(t)
	n := nodeOf(t, ipnet.Config{
		Networks: networks.Config{Blocks: true, Tunnels: networks.Tunnels{Tunnel: networks.TunnelVXLAN4}},
	}).run(t)
	n.join(t, self(), other(2, "10.1.9.0/26", "2001:db8:1::c0/122"))
	if err := n.refuses(t, sandbox("a")); !strings.Contains(err.Error(), "no pool of the node") {
		t.Errorf("without pools: %v", err)
	}
	if refused := n.setPools(t, cluster4); len(refused) > 0 {
		t.Fatal(refused)
	}
	n.give(t, block("", "10.1.5.0/26"))
	n.add(t, sandbox("a"))
	if refused := n.setPools(t, cluster4, cluster6); len(refused) > 0 {
		t.Fatal(refused)
	}
	n.give(t, block("", "10.1.5.0/26"), block("", "2001:db8:1::40/122"))

	configured.join(t, self(), other(2, "10.1.9.0/26", "2001:db8:1::c0/122"))
	configured.give(t, block("", "10.1.5.0/26"))
	n.delete(t, sandbox("a"))
	configured.give(t, block("", "10.1.5.0/26"), block("", "2001:db8:1::40/122"))
	n.now = n.now.Add(coolDown)
	want := list(t, configured.committer.Values())
	if got := list(t, n.committer.Values()); got != want {
		t.Errorf("values\n%s\nwant\n%s", got, want)
	}
	if got := list(t, n.restarted(t).committer.Values()); got != want {
		t.Errorf("after a restart\n%s\nwant\n%s", got, want)
	}
}

func TestPoolIsRemovedWhenNoAddressOfItIsInUse(t *testing.T) {
	next := netaddr.Pool{Name: "next", Prefix: netip.MustParsePrefix("10.9.0.0/28")}
	n := newNode(t, four).run(t)
	ev := sandbox("a")
	a := n.add(t, ev)
	moved := four
	moved.Prefix = netip.MustParsePrefix("10.8.0.0/28")
	for _, wanted := range [][]netaddr.Pool{{next}, {next, moved}} {
		refused := n.setPools(t, wanted...)
		if !strings.Contains(refused["default4"], "addresses are in use: the pool stays 10.1.0.0/28") ||
			len(refused) != 1 {
			t.Errorf("refused %v", refused)
		}
		n = n.restarted(t)
		for _, key := range n.Pods.Objects(a) {
			if n.committer.Values()[key] == nil {
				t.Errorf("%s of the pod is gone", key)
			}
		}
	}
	if got := mainAddress(n.add(t, sandbox("b"))); got != "10.9.0.2" {
		t.Errorf("address of a new pod: %s", got)
	}
	n.delete(t, ev)
	n.delete(t, sandbox("b"))
	n.now = n.now.Add(coolDown)
	if refused := n.setPools(t, next); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	if got, want := list(t, n.committer.Values()), list(t, newNode(t, next).run(t).committer.Values()); got != want {
		t.Errorf("values\n%s\nwant\n%s", got, want)
	}
}

func TestInvalidPoolsAreNamed(t *testing.T) {
	pool := func(name, prefix string) netaddr.Pool {
		return netaddr.Pool{Name: name, Prefix: netip.MustParsePrefix(prefix)}
	}
	n := nodeOf(t, ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}, MTU: 1000}}).run(t)
	refused := n.setPools(t, four, pool("within", "10.1.0.0/30"), pool("a:b", "10.2.0.0/24"),
		pool("bits", "10.2.0.1/24"),
		pool("default4", "10.3.0.0/24"), pool("six", "fd00::/64"), pool("good", "10.4.0.0/24"))
	want := map[string]string{
		"within":   "overlap",
		"a:b":      "without colons",
		"bits":     "did you mean",
		"default4": "twice",
		"six":      "below 1280",
	}
	for name, part := range want {
		if !strings.Contains(refused[name], part) {
			t.Errorf("%s: refused with %q, want %q", name, refused[name], part)
		}
	}
	if stats, _ := n.Networks.Addresses(); len(refused) != len(want) || len(stats) != 2 || stats[1].Name != "good" {
		t.Errorf("refused %v, pools %v", refused, stats)
	}
	ev := sandbox("a")
	ev.Annotations = map[string]string{pod.AnnotationPools: `["good"]`}
	if got := mainAddress(n.add(t, ev)); got != "10.4.0.2" {
		t.Errorf("address %s", got)
	}
	closed := pool("good", "10.4.0.0/24")
	closed.Disabled = true
	if refused := n.setPools(t, four, closed); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	again := sandbox("b")
	again.Annotations = ev.Annotations
	if err := n.refuses(t, again); !strings.Contains(err.Error(), "pool good is disabled") {
		t.Errorf("error %v", err)
	}
}
