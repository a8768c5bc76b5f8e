package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// queued requests links with other numbers of queues than the node's default.
var queued = map[string]any{"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{
	"contivpp.io/custom-if":         "d0/tap,t1/tap/blue,v1/veth/red,w1/veth/stub",
	"contivpp.io/custom-if-options": `{"t1":{"rxQueues":2,"txQueues":2},"v1":{"rxQueues":2,"txQueues":2},"w1":{"rxQueues":4,"txQueues":1}}`,
}}}

// queues returns the numbers of queues of a pod's links in its kernel.
func (l *lab) queues(p *node.Pod) string {
	l.Helper()
	var all []string
	for _, link := range []string{"eth0", "d0", "t1", "v1", "w1"} {
		rx, tx := netnstest.Queues(l, p.Netns, link)
		all = append(all, fmt.Sprintf("%s %d/%d", link, rx, tx))
	}
	return strings.Join(all, ", ")
}

// Taps and veths of pods have the requested queues, or the node's default, and all queues receive packets. Neither a
// restart of the agent nor the loss of its state file changes anything, although the dataplane does not report the
// numbers; and nothing is left over.
func TestPodsHaveTheRequestedQueues(t *testing.T) {
	dir := programs.Build(t)
	const want = "eth0 3/3, d0 3/3, t1 2/2, v1 2/2, w1 4/1"
	for _, kind := range []string{"tap", "veth"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "tap" {
				dataplane.RequireTap(t)
			}
			l := newLabWith(t, dir, node.Options{PodInterface: kind, PodQueues: 3, Networks: customNetworks})
			before := l.snapshot()
			a := l.pod("a")
			b := l.pod("b")
			ofB := queued
			if !dataplane.HasTaps() {
				ofB = nil // a thread of VPP reads 15 queues of veths, and a has 11 of them
			}
			resultA := l.cni("ADD", a, queued)
			resultB := l.cni("ADD", b, ofB)
			if got := l.queues(a); got != want {
				t.Errorf("queues %s, want %s", got, want)
			}
			reach := func() {
				for _, address := range l.addresses(resultB) {
					l.mustReach(a, address)
				}
			}
			reach()
			l.check(a, resultA)
			connected := l.snapshot()
			for _, lose := range []func(string) error{func(string) error { return nil }, os.Remove} {
				l.restartAfter(lose)
				l.mustKnowAll(connected)
			}
			reach()
			l.check(a, resultA)
			if got := l.queues(a); got != want {
				t.Errorf("queues %s after restarts, want %s", got, want)
			}
			l.cni("DEL", a, queued)
			l.cni("DEL", b, ofB)
			if diff := l.snapshot().Since(before); len(diff) > 0 {
				t.Errorf("left behind: %v", diff)
			}
		})
	}
}
