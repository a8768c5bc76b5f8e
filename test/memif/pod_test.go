package memif_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// timeout is the timeout of everything that a test waits for.
const timeout = time.Minute

// close removes the node, and logs its programs' output if the test failed.
func (l *lab) close() {
	if l.Failed() {
		l.Log(l.LogTails(1000))
	}
	if err := l.Close(); err != nil {
		l.Error(err)
	}
}

// admit makes a pod's sandbox, after kubelet has allocated its containers' devices.
func (l *lab) admit(
	name, custom, options string, containers ...kubelettest.Container,
) (*node.Pod, []kubelettest.Container) {
	l.Helper()
	p, err := l.NewPod(name)
	l.try(err)
	p.Annotations = map[string]string{"contivpp.io/custom-if": custom, "contivpp.io/custom-if-options": options}
	containers, err = l.Admit(l.Context(), p, containers...)
	l.try(err)
	return p, containers
}

// neighbour returns a pod with only its main interface.
func (l *lab) neighbour(name string) *node.Pod {
	l.Helper()
	p, err := l.NewPod(name)
	l.try(err)
	l.add(p)
	return p
}

// add runs the ADD of a pod.
func (l *lab) add(p *node.Pod) []node.Link {
	l.Helper()
	result, err := l.runtime.Add(l.Context(), p)
	l.try(err)
	links, err := node.Links(result)
	l.try(err)
	return links
}

// reach sends echo requests from a pod to an address until it answers: a client is connected shortly before the
// dataplane uses the connection.
func (l *lab) reach(from *node.Pod, to netip.Addr) { l.Helper(); l.reachBy(from, "", to) }

// reachBy is reach over a link of the pod.
func (l *lab) reachBy(from *node.Pod, link string, to netip.Addr) {
	l.Helper()
	p, err := ping.OpenOn(from.Netns, link, to)
	l.try(err)
	defer p.Close()
	ctx, cancel := context.WithTimeout(l.Context(), timeout)
	defer cancel()
	if _, err := p.Reach(ctx, to); err != nil {
		l.Errorf("%s from %s by %s: %v", to, from.Name, link, err)
	}
}

// eventually calls try until it returns no error.
func (l *lab) eventually(try func() error) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), timeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			l.Fatal(err)
		case <-tick.C:
		}
	}
}

func TestPodWithAMemifIsReachable(t *testing.T) {
	l := newLab(t, node.Options{})
	a := l.neighbour("a")
	d, containers := l.admit("d", "m1/memif", "", kubelettest.Container{Name: "vnf", Limit: 1})
	links := l.add(d)
	m1 := links[1]
	if m1.Name != "m1" || m1.SocketPath == "" || m1.Mac == "" || m1.Mtu == 0 || len(m1.Addresses) != 2 {
		t.Errorf("the memif of the result is %+v", m1)
	}
	responder := l.start(d, containers[0], "icmpresponder")
	l.awaitOutput(responder, "connected")
	for _, address := range m1.Bare() {
		l.reach(a, address)
	}
}
