package agent

import (
	"strings"
	"sync/atomic"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/weftnet/weft/k8s/k8stest"
	testcri "github.com/weftnet/weft/test/cri"
	"github.com/weftnet/weft/test/node"
)

func TestWeftctlGCShowsTheMissingEvidenceOfASandboxsEnd(t *testing.T) {
	var listed atomic.Pointer[[]*cri.PodSandbox]
	listed.Store(&[]*cri.PodSandbox{})
	socket := testcri.Serve(t, &testcri.Runtime{Sandboxes: listed.Load})
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{RuntimeSocket: socket, Memifs: 2})
	a := l.pod("a")
	b := l.pod("b")
	for _, p := range []*node.Pod{a, b} {
		l.put(server, p, nil)
		l.cni("ADD", p, nil)
	}
	gc := func(args ...string) string {
		out, err := l.Weftctl(t.Context(), append([]string{"gc"}, args...)...)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
	server.Remove("pods", "lab", "a")
	l.eventually("kubelet reports no sandbox", func() bool {
		return strings.Contains(gc("--dry-run"), " of 10m0s without a sandbox")
	})
	listed.Store(&[]*cri.PodSandbox{{Id: b.ContainerID}})
	l.eventually("the runtime reports no sandbox", func() bool {
		return strings.Contains(gc(), " of 1m0s without a sandbox")
	})
	listed.Store(&[]*cri.PodSandbox{{Id: a.ContainerID}, {Id: b.ContainerID}})
	l.eventually("the runtime reports the sandbox", func() bool {
		return strings.Contains(gc("--dry-run"), "kept: the container runtime still has the sandbox")
	})
	if out := gc("--force", "weft/"+a.ContainerID+"/eth0"); !strings.Contains(out, "deleted") {
		t.Errorf("by force: %s", out)
	}
	if out := gc("--dry-run"); !strings.Contains(out, "all attachments have sandboxes") {
		t.Errorf("in the end: %s", out)
	}
	l.cni("DEL", b, nil)
}
