package memif_test

import (
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/dataplane"
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

// Two programs share memory; the dataplane has neither memif. They stay connected when the dataplane restarts, and
// connect again after a restart of the agent or of either program.
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

// VPP in a pod is the server of a direct network, with the commands of docs/memif.md.
func TestVPPIsTheServerOfADirectNetwork(t *testing.T) {
	environment := dataplane.RequireVPP(t)
	l := newLab(t, node.Options{Networks: directNetworks, Embedded: true})
	a, containers := l.admit("a", "a1/memif/pair", `{"a1":{"role":"server"}}`, kubelettest.Container{
		Name:  "vpp",
		Limit: 1,
	})
	l.add(a)
	c := containers[0]
	maps.Copy(c.Envs, environment)
	vpp := l.start(a, c, "/bin/sh", "-c",
		"exec vpp unix { nodaemon cli-listen /run/vpp/cli.sock } buffers { page-size 4k } "+
			"plugins { plugin default { disable } plugin memif_plugin.so { enable } plugin ping_plugin.so { enable } }")
	l.eventually(func() error { return vpp.run("vppctl show version") })
	l.try(vpp.run(`vppctl create memif socket id 2 filename abstract:weft/a1
vppctl create interface memif id 1 socket-id 2 master secret $MEMIF_SECRET
vppctl set interface state memif2/1 up
vppctl set interface ip address memif2/1 10.9.0.1/24`))
	b, ofB := l.direct("b", `{"b1":{"ips":["10.9.0.2/24"]}}`)
	l.awaitOutput(ofB, "b1: connected")
	l.reachBy(b, "b1", netip.MustParseAddr("10.9.0.1"))
}
