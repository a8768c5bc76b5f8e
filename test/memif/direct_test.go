package memif_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
)

var directNetworks = []node.Network{{Name: "pair", Type: "L2", Direct: true}}

// direct makes a pod with a memif on the direct network, as a tap of its kernel.
func (l *lab) direct(name, options string) (*node.Pod, *program) {
	l.Helper()
	p, containers := l.admit(name, name+"1/memif/pair", options, kubelettest.Container{Name: "vnf", Limit: 1})
	l.add(p)
	return p, l.start(p, containers[0], "memiftap")
}

// Two programs share memory; the dataplane has neither memif. They stay connected when the dataplane restarts, and connect again after a
// restart of the agent or of either program.
func TestDirectNetworkConnectsTwoPods(t *testing.T) {
	l := newLab(t, node.Options{Networks: directNetworks})
	a, ofA := l.direct("a", `{"a1":{"role":"server","ips":["10.9.0.1/24"],"mac":"02:00:00:00:09:01"}}`)
	b, ofB := l.direct("b", `{"b1":{"ips":["10.9.0.2/24"]}}`)
	both := func(times int) {
		l.Helper()
		l.awaitOutputTimes(ofA, times, "a1: connected")
		l.awaitOutputTimes(ofB, times, "b1: connected")
		l.reachBy(a, "a1", netip.MustParseAddr("10.9.0.2"))
		l.reachBy(b, "b1", netip.MustParseAddr("10.9.0.1"))
	}
	both(1)
	l.try(l.KillDataplane())
	both(1)
	if out := ofA.out.String() + ofB.out.String(); strings.Contains(out, "disconnected") {
		t.Errorf("the restart of the dataplane disconnected the pods: %s", out)
	}
	l.try(l.KillAgent())
	l.try(l.StartAgent(t.Context()))
	both(2)
}
