package ctl_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/ctl"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
)

// ready is the document of a ready agent.
const ready = `{"version": "weft v1.0.0 (3f2a9c1d0b4e)", "ready": true, "dataplane": "weft-vswitch 25.10", "attachments": 12,
	"objects": {"InSync": 200, "Observed": 3}, "conditions": [{"name": "started", "ok": true, "message": "resynced"}]}`

// broken is the document of an agent that is not ready.
const broken = `{"version": "weft v0.9.0 (aaaaaaaaaaaa)", "ready": false, "dataplane": "", "attachments": 3, "objects": {"InSync": 1, "Failed": 2, "Pending": 7},
	"conditions": [{"name": "started", "ok": true, "message": "resynced"}, {"name": "dataplane", "ok": false, "message": "connecting to\n/run/weft/api.sock"}]}`

// states is a weftctl status: n2 is not ready.
func states(node string, x k8stest.Exec) int {
	if node == "n2" {
		_, _ = io.WriteString(x.Out, broken)
		_, _ = io.WriteString(x.Err, "weftctl: the agent is not ready: dataplane: connecting to /run/weft/api.sock\n")
		return 1
	}
	_, _ = io.WriteString(x.Out, ready)
	return 0
}

func (a *agents) lease(renewed time.Time) {
	a.Put("leases.coordination.k8s.io", &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "weft-system", Name: "weft-controller"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To("weft-controller-7d9f-x2x"),
			LeaseDurationSeconds: ptr.To(int32(15)),
			RenewTime:            ptr.To(metav1.NewMicroTime(renewed)),
		},
	})
}

// A screen has shortened texts; a pipe and --wide have all of them.
func TestStatusOfAClusterIsShortenedOnlyOnAScreen(t *testing.T) {
	const (
		version   = "v0.1.0-dev.1560.gcc2132ff4ec2"
		dataplane = "weft-vswitch 25.10 of a long name"
	)
	a := newAgents(t, func(_ string, x k8stest.Exec) int {
		_, _ = fmt.Fprintf(x.Out, `{"version": "weft %s (3f2a9c1d0b4e)", "ready": true, "dataplane": %q}`, version,
			dataplane)
		return 0
	}, "n1")
	a.lease(time.Now())
	for _, tt := range []struct {
		width int
		args  []string
		whole bool
	}{{0, nil, true}, {80, []string{"--wide"}, true}, {80, nil, false}} {
		var out strings.Builder
		env := ctl.Env{In: strings.NewReader(""), Out: &out, Err: io.Discard, Plugin: true, Width: tt.width}
		ctl.Main(t.Context(), env, append([]string{"status", "--kubeconfig", a.kubeconfig}, tt.args...))
		if got := out.String(); strings.Contains(got, version) != tt.whole ||
			strings.Contains(got, dataplane) != tt.whole || strings.Contains(got, "…") == tt.whole {
			t.Errorf("width %d, %q:\n%s", tt.width, tt.args, got)
		}
	}
}

func TestStatusOfAHealthyClusterFitsOnAScreen(t *testing.T) {
	a := newAgents(t, states, "n1", "n3")
	a.lease(time.Now())
	a.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Status:     v1.IPPoolStatus{Conditions: v1.Conditions{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}},
	})
	a.mustPrint(true, `2 nodes, 2 ready
NODE  READY  AGENT   DATAPLANE           PODS  NOT IN SYNC
n1    yes    v1.0.0  weft-vswitch 25.10    12  -
n3    yes    v1.0.0  weft-vswitch 25.10    12  -

controller  weft-controller-7d9f-x2x leads
networks    0
pools       1
`, "status")
}

func TestStatusOfAClusterNamesEachProblem(t *testing.T) {
	a := newAgents(t, states, "n1", "n2")
	a.node("n3", corev1.ConditionTrue)
	a.lease(time.Now().Add(-10 * time.Minute))
	a.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "blue"},
		Status: v1.CustomNetworkStatus{Conditions: v1.Conditions{
			{
				Type:    v1.ConditionReady,
				Status:  metav1.ConditionFalse,
				Reason:  "Refused",
				Message: "node n2: the VNI is in use",
			},
		}},
	})
	a.Put("ippools.contivpp.io", &v1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "pods"}})
	out, failures, code := a.run(false, "status", "--all-nodes")
	if code != 1 || failures != "weftctl: not ready: n2, n3\n" {
		t.Errorf("exit code %d: %s", code, failures)
	}
	for _, want := range []string{
		"3 nodes, 1 ready\n",
		"n2    no     v0.9.0  -                   3     2 Failed, 7 Pending\n", "n3    ?      -       -",
		"controller  weft-controller-7d9f-x2x renewed its lease last 10m0s ago\n",
		"versions    2 different versions of the agent\n",
		"  node n2: dataplane: connecting to /run/weft/api.sock\n",
		"  node n3: no agent: namespace weft-system has no pod",
		"  network blue: Refused: node n2: the VNI is in use\n", "  pool pods: no status: does the controller run?\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	line := []string{"status", "--all-nodes", "-o", "json"}
	out, _, code = a.run(false, line...)
	if err := followsSchema(false, line, []byte(out)); err != nil {
		t.Error(err)
	}
	var got struct {
		Nodes []struct {
			Node             string
			Ready            bool
			Attachments      int
			ObjectsNotInSync map[string]int
		}
		ControllerRunning bool
		Problems          []struct{ Kind, Name, Reason string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 1 || got.ControllerRunning ||
		len(got.Problems) != 2 || got.Nodes[1].ObjectsNotInSync["Failed"] != 2 {
		t.Errorf("exit code %d, %v, %s", code, err, out)
	}
}

func TestStatusOfALargeClusterShowsTheNodesWithProblems(t *testing.T) {
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("a-node-with-a-rather-long-name-%d.example.org", i))
	}
	a := newAgents(t, states, append(names, "n2")...)
	a.lease(time.Now())
	out, failures, code := a.run(true, "status")
	if code != 1 || failures != "kubectl weft: not ready: n2\n" ||
		!strings.HasPrefix(out, "61 nodes, 60 ready\nNODE  READY") || strings.Contains(out, "example") {
		t.Errorf("exit code %d: %s%s", code, out, failures)
	}
	for line := range strings.Lines(out) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("more than 80 columns: %s", line)
		}
	}
}
