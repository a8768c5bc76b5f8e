package agent

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/agent/statefile"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/leftovers"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

func TestVethWithoutAnOwnerIsKept(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{PodInterface: "veth"})
	a := l.pod("a")
	result := l.cni("ADD", a, nil)
	alias := l.setAlias(a, "")
	l.restartAfter(os.Remove)
	l.restartAfter(func(string) error { return nil }) // the rebuild is still incomplete
	if lines := l.logged("left alone"); len(lines) != 2 || !strings.Contains(lines[0], "-eth0") {
		t.Errorf("log lines about the veth without an owner: %q", lines)
	}
	for _, operation := range l.resyncs() {
		if strings.HasPrefix(operation, "delete ") {
			t.Errorf("operation of the resync: %s", operation)
		}
	}
	b := l.pod("b")
	l.cni("ADD", b, nil) // gets other addresses than the unknown pod
	l.setAlias(a, alias)
	for _, address := range l.addresses(result) {
		l.mustReach(b, address)
	}
}

// mixed are interfaces of every kind, on every kind of network, ordered by name.
var mixed = map[string]any{"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{
	"contivpp.io/custom-if": "d1/veth,s1/veth/stub,t1/tap/blue,u1/tap/bare,v1/veth/red",
}}}

var customNetworks = []node.Network{
	{
		Name:  "red",
		Type:  "L3",
		CIDRs: []netip.Prefix{netip.MustParsePrefix("10.6.0.0/24"), netip.MustParsePrefix("fd00:6::/64")},
	},
	{Name: "bare", Type: "L2"},
	{Name: "blue", Type: "L2", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24")}, AntiSpoof: true},
}

// networkLab is a node with networks whose numbers differ from the order of their names.
func networkLab(t *testing.T, dir, kind string) *lab {
	t.Helper()
	l := newLabWith(t, dir, node.Options{PodInterface: kind, Networks: customNetworks[:2]})
	if err := l.SetNetworks(customNetworks); err != nil {
		t.Fatal(err)
	}
	l.restartAfter(func(string) error { return nil })
	return l
}

func TestLostStateFileCostsNoPodAnInterface(t *testing.T) {
	dir := programs.Build(t)
	for name, tt := range map[string]struct {
		kind string
		lose func(path string) error
	}{
		"tap":                  {"tap", os.Remove},
		"veth":                 {"veth", os.Remove},
		"no readable networks": {"tap", garble(statefile.BucketNetworks)},
		"no readable entry": {
			"veth", garble(statefile.BucketNetworks, statefile.BucketAttachments, statefile.BucketLeases),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.kind == "tap" {
				dataplane.RequireTap(t)
			}
			l := networkLab(t, dir, tt.kind)
			before := l.snapshot()
			a := l.pod("a")
			b := l.pod("b")
			resultA := l.cni("ADD", a, mixed)
			resultB := l.cni("ADD", b, mixed)
			if !bytes.Contains(resultA, []byte(`"v1"`)) {
				t.Fatalf("interfaces are missing: %s", resultA)
			}
			connected := l.snapshot()
			l.restartAfter(tt.lose)
			l.mustKnowAll(connected)
			for _, address := range l.addresses(resultB) {
				l.mustReach(a, address)
			}
			l.check(a, resultA)
			l.restartAfter(func(string) error { return nil }) // the rebuilt state is durable
			l.mustKnowAll(connected)
			if again := l.cni("ADD", a, mixed); !bytes.Equal(again, resultA) {
				t.Errorf("repeated ADD: %s\nfirst: %s", again, resultA)
			}
			l.cni("DEL", a, mixed)
			l.cni("DEL", b, mixed)
			if diff := l.snapshot().Since(before); len(diff) > 0 {
				t.Errorf("left behind: %v", diff)
			}
		})
	}
}

// mustKnowAll fails the test unless the running agent has rebuilt the complete state.
func (l *lab) mustKnowAll(connected leftovers.Snapshot) {
	l.Helper()
	if operations := l.resyncs(); len(operations) > 0 {
		l.Errorf("operations of the resync: %v", operations)
	}
	if diff := l.snapshot().Since(connected); len(diff) > 0 {
		l.Errorf("differences to before the loss: %v", diff)
	}
	if lines := l.logged("left alone"); len(lines) > 0 {
		l.Errorf("unknown interfaces: %q", lines)
	}
}

func TestInterfaceOfAnUnknownNetworkIsKept(t *testing.T) {
	l := networkLab(t, programs.Build(t), dataplane.Tap())
	before := l.snapshot()
	a := l.pod("a")
	result := l.cni("ADD", a, mixed)
	if err := l.SetNetworks(nil); err != nil { // refused by the agent that knows the pod
		t.Fatal(err)
	}
	l.restartAfter(os.Remove)
	if lines := l.logged("left alone"); len(lines) != 3 {
		t.Errorf("log lines about 3 interfaces on networks: %q", lines)
	}
	for _, operation := range l.resyncs() {
		t.Errorf("operation of the resync: %s", operation)
	}
	if err := l.SetNetworks(customNetworks); err != nil {
		t.Fatal(err)
	}
	l.restartAfter(func(string) error { return nil })
	l.check(a, result)
	l.cni("DEL", a, mixed)
	if diff := l.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind: %v", diff)
	}
}

func TestPodOnAVethThatVanishedIsPruned(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{PodInterface: "veth"})
	if err := endVeths(); err != nil { // of earlier tests' pods, if the kernel has not deleted them yet
		t.Fatal(err)
	}
	before := l.snapshot()
	p := l.pod("a")
	l.cni("ADD", p, nil)
	l.restartAfter(func(path string) error {
		return errors.Join(os.Remove(path), p.Remove(), endVeths())
	})
	if diff := l.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind: %v", diff)
	}
	l.cni("DEL", p, nil)
}

// Where the dataplane has no taps, the host link is a veth too; the rebuild must not mistake it for a pod's.
func TestHostLinkIsNotAPodsWhenTheStateFileIsLost(t *testing.T) {
	l := newLabWith(t, programs.Build(t), node.Options{PodInterface: "veth"})
	restart := func(change func() error) {
		t.Helper()
		if err := errors.Join(l.KillAgent(), change(),
			l.StartAgent(t.Context(), "--host-link-type", "veth")); err != nil {
			t.Fatal(err)
		}
	}
	restart(func() error { return nil })
	before := l.snapshot()
	p := l.pod("a")
	l.cni("ADD", p, nil)
	restart(func() error { return os.Remove(l.stateFile()) })
	if lines := l.logged("left alone"); len(lines) > 0 {
		t.Errorf("logged: %q", lines)
	}
	l.cni("DEL", p, nil)
	if diff := l.snapshot().Since(before); len(diff) > 0 {
		t.Errorf("left behind: %v", diff)
	}
}

// endVeths deletes all veths of pods, as the kernel does with those of a deleted namespace.
func endVeths() error {
	links, err := netlink.LinkList()
	for _, l := range links {
		if l.Type() == "veth" && strings.Contains(l.Attrs().Alias, "/") {
			if gone := netlink.LinkDel(l); !errors.Is(gone, syscall.ENODEV) { // the kernel may have deleted it
				err = errors.Join(err, gone)
			}
		}
	}
	return err
}
