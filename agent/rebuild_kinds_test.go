package agent

import (
	"bytes"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/test/node"
)

func TestAVethOfNobodyIsLeftAlone(t *testing.T) {
	l := newLabWith(t, build(t), node.Options{PodInterface: "veth"})
	a := l.pod("a")
	result := l.cni("ADD", a, nil)
	alias := l.setAlias(a, "")
	l.restartAfter(os.Remove)
	l.restartAfter(func(string) error { return nil }) // the debt is not forgotten
	if lines := l.logged("left alone"); len(lines) != 2 || !strings.Contains(lines[0], "-eth0") {
		t.Errorf("the veth of nobody was logged so: %q", lines)
	}
	for _, operation := range l.resyncs() {
		if strings.HasPrefix(operation, "delete ") {
			t.Errorf("the resync did %s", operation)
		}
	}
	b := l.pod("b")
	l.cni("ADD", b, nil) // gets other addresses than the pod that nobody knows
	l.setAlias(a, alias)
	for _, address := range l.addresses(result) {
		l.mustReach(b, address)
	}
}

// mixed are interfaces of every kind, on every kind of network, in the order of their names.
var mixed = map[string]any{"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{
	"contivpp.io/custom-if": "d1/veth,s1/veth/stub,t1/tap/blue,u1/tap/bare,v1/veth/red",
}}}

func TestALostStateFileCostsNoPodAnyInterface(t *testing.T) {
	programs := build(t)
	networks := []node.Network{
		{Name: "red", Type: "L3", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.6.0.0/24"), netip.MustParsePrefix("fd00:6::/64")}},
		{Name: "bare", Type: "L2"},
	}
	blue := node.Network{Name: "blue", Type: "L2", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")}, AntiSpoof: true}
	for _, kind := range []string{"tap", "veth"} {
		t.Run(kind, func(t *testing.T) {
			l := newLabWith(t, programs, node.Options{PodInterface: kind, Networks: networks})
			if err := l.SetNetworks(append(networks, blue)); err != nil { // numbers that do not follow the names
				t.Fatal(err)
			}
			l.restartAfter(func(string) error { return nil })
			before := l.snapshot()
			a, b := l.pod("a"), l.pod("b")
			resultA, resultB := l.cni("ADD", a, mixed), l.cni("ADD", b, mixed)
			if !bytes.Contains(resultA, []byte(`"v1"`)) {
				t.Fatalf("not all was made: %s", resultA)
			}
			wired := l.snapshot()

			l.restartAfter(os.Remove)
			if operations := l.resyncs(); len(operations) > 0 {
				t.Errorf("the resync did %v", operations)
			}
			if diff := l.snapshot().Since(wired); len(diff) > 0 {
				t.Errorf("since before the loss: %v", diff)
			}
			if lines := l.logged("left alone"); len(lines) > 0 {
				t.Errorf("not all is known: %q", lines)
			}
			for _, address := range l.addresses(resultB) {
				l.mustReach(a, address)
			}
			l.check(a, resultA)
			l.restartAfter(func(string) error { return nil }) // what was made anew is durable
			if again := l.cni("ADD", a, mixed); !bytes.Equal(again, resultA) {
				t.Errorf("ADD again: %s\nwas %s", again, resultA)
			}
			l.cni("DEL", a, mixed)
			l.cni("DEL", b, mixed)
			if diff := l.snapshot().Since(before); len(diff) > 0 {
				t.Errorf("left behind: %v", diff)
			}
		})
	}
}
