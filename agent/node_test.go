package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/node"
)

// startsUnknowing starts the agent without any state of the cluster.
func (l *lab) startsUnknowing() {
	l.Helper()
	if err := l.StopAgent(); err != nil {
		l.Fatal(err)
	}
	if err := os.Remove(l.stateFile()); err != nil {
		l.Fatal(err)
	}
	if err := l.BeginAgent(); err != nil {
		l.Fatal(err)
	}
}

// waitsFor waits until ADD fails for the reason, and STATUS and weftctl status show it; liveness must hold, so that
// kubelet does not restart the agent.
func (l *lab) waitsFor(p *node.Pod, reason string, code uint) {
	l.Helper()
	var output string
	l.eventually("STATUS shows that the agent waits for "+reason, func() bool {
		output, _ = l.tries("STATUS", p)
		return strings.Contains(output, reason)
	})
	if !strings.Contains(output, fmt.Sprintf(`"code": %d,`, code)) {
		l.Errorf("STATUS: %s, want code %d", output, code)
	}
	if out, err := exec.CommandContext(l.Context(), l.Program("weft-agent"), "health", "--alive", "--socket",
		l.Socket()).CombinedOutput(); err != nil {
		l.Errorf("kubelet would restart the agent: %v: %s", err, out)
	}
	if out, err := l.Weftctl(l.Context(), "status"); err == nil || !strings.Contains(err.Error(), reason) {
		l.Errorf("weftctl status: %s (%v)", out, err)
	}
	if output := l.fails(p); !strings.Contains(output, `"code": 11`) || !strings.Contains(output, reason) {
		l.Errorf("ADD: %s", output)
	}
}

// mtus returns the MTUs of a result's interfaces in the sandbox.
func (l *lab) mtus(result []byte) (mtus []int) {
	l.Helper()
	var r struct {
		Interfaces []struct {
			Sandbox string
			MTU     int `json:"mtu"`
		}
	}
	if err := json.Unmarshal(result, &r); err != nil {
		l.Fatal(err)
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			mtus = append(mtus, i.MTU)
		}
	}
	return mtus
}

func TestPodsAreServedOnlyWhenTheirMTUIsKnown(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{RequireUplink: true})
	a := l.pod("a")
	l.put(server, a, nil)
	server.Disconnect()
	l.startsUnknowing()
	l.waitsFor(a, "waits for the API server to say what the node is", pod.CodeUnavailable)
	l.cni("DEL", a, nil) // queued

	if err := l.StopAgent(); err != nil {
		t.Fatal(err)
	}
	if output := l.logged("weft-agent: "); len(output) > 0 || len(l.logged("stopped before it had started")) != 1 {
		t.Errorf("an agent that is stopped while it waits returns an error: %q", output)
	}
	if err := l.BeginAgent(); err != nil {
		t.Fatal(err)
	}

	link, err := netlink.LinkByName("up0")
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		t.Fatal(err)
	}
	server.Reconnect()
	l.waitsFor(a, "waits for the uplink", pod.CodeUnavailable)

	uplinkOf(t)
	if err := l.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	result := l.cni("ADD", a, nil)
	if got := l.mtus(result); len(got) != 1 || got[0] != uplinkMTU-50 {
		t.Errorf("MTU %v of a pod, the uplink's is %d", got, uplinkMTU)
	}
	l.check(a, result)
	l.cni("DEL", a, nil)
}
