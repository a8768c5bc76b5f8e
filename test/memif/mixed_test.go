package memif_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/stopwatch"
)

// networks returns one network of each type.
func networks() []node.Network {
	prefix := netip.MustParsePrefix
	return []node.Network{
		{Name: "blue", Type: "L2", CIDRs: []netip.Prefix{prefix("10.5.0.0/24"), prefix("fd00:5::/64")}},
		{Name: "red", Type: "L3", CIDRs: []netip.Prefix{prefix("10.6.0.0/24"), prefix("fd00:6::/64")}},
	}
}

// Over L2 and L3.
func TestMemifsTapsAndVethsOfOneNetworkReachEachOther(t *testing.T) {
	for _, n := range networks() {
		t.Run(n.Type, func(t *testing.T) {
			l := newLab(t, node.Options{Networks: networks()})
			d, containers := l.admit("d", "m1/memif/"+n.Name+",m2/memif/"+n.Name,
				`{"m2":{"ringSize":64,"bufferSize":256}}`,
				kubelettest.Container{Name: "vnf", Limit: 2})
			links := l.add(d)
			responder := l.start(d, containers[0], "icmpresponder")
			l.awaitOutput(responder, "m1: connected to")
			l.awaitOutput(responder, "m2: connected to")
			for _, kind := range slices.DeleteFunc(dataplane.Kinds(), func(kind string) bool {
				return kind == "memif"
			}) {
				p, err := l.NewPod(kind)
				l.try(err)
				p.Annotations = map[string]string{"contivpp.io/custom-if": fmt.Sprintf("x0/%s/%s", kind, n.Name)}
				l.add(p)
				for _, m := range links[1:] {
					for _, address := range m.Bare() {
						l.reachBy(p, "x0", address)
					}
				}
			}
		})
	}
}

// within is the time in which a restarted kubelet must have the node's devices again.
const within = 2 * time.Second

// Kubelet restarts, or its directory is also wiped; existing allocations keep working.
func TestRestartedKubeletHasTheDevicesWithinTwoSeconds(t *testing.T) {
	g := newGranted(t, nil)
	m1 := g.addAndCheck(g.pod)
	for name, disturb := range map[string]func() error{
		"restarted": g.Kubelet.Restart,
		"wiped":     g.Kubelet.Wipe,
		"cut off":   func() error { return g.Kubelet.Disconnect(node.Memif) },
	} {
		before := g.Kubelet.Registrations()
		g.try(disturb())
		if name == "wiped" { // kubelet restarts then, because its socket is gone
			g.try(g.Kubelet.Restart())
		}
		took := stopwatch.Time(func() {
			g.eventually(func() error {
				if _, devices := g.Kubelet.Capacity(node.Memif); devices != memifs ||
					g.Kubelet.Registrations() == before {
					return fmt.Errorf("%s: kubelet has %d devices", name, devices)
				}
				return nil
			})
		})
		if took > within {
			t.Errorf("%s: kubelet had no devices for %s", name, took)
		}
		g.works(g.pod, m1)
	}
	if least := g.Kubelet.LeastOffered(node.Memif); least != memifs {
		t.Errorf("the shortest list of devices had %d, want %d", least, memifs)
	}
}
