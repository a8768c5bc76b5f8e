package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/ctl"
	"github.com/weftnet/weft/internal/probe"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
)

// kubelets is a cluster whose kubelets start each pod when a client asks for it, unless its node is in refuse.
type kubelets struct {
	*k8stest.Server
	t          *testing.T
	kubeconfig string
	refuse     string
	networks   map[string]v1.CustomNetworkSpec // by name
	addresses  map[string]string               // of eth0, by pod
	outcome    func(p probe.Probe) string
	seen       map[string]*corev1.Pod
	written    func(text string) // called with each line of progress
	endless    bool              // the probes never end
}

func newKubelets(t *testing.T, nodes ...string) *kubelets {
	a := newAgents(t, says, nodes...)
	k := &kubelets{
		Server:     a.Server,
		t:          t,
		kubeconfig: a.kubeconfig,
		outcome:    func(probe.Probe) string { return "" },
		seen:       map[string]*corev1.Pod{},
		networks:   map[string]v1.CustomNetworkSpec{},
		addresses:  map[string]string{"client": "10.1.0.2", "near": "10.1.0.3", "far": "10.1.1.2"},
	}
	for i, name := range nodes {
		k.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+1)}, {
					Type:    corev1.NodeInternalIP,
					Address: fmt.Sprintf("2001:db8::%d", i+1),
				},
			},
			Allocatable: corev1.ResourceList{"contivpp.io/memif": resource.MustParse("4")},
		}})
		k.Put("pods", &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "weft-system", Name: "weft-agent-" + name, Labels: agentLabels},
			Spec: corev1.PodSpec{
				NodeName:   name,
				Containers: []corev1.Container{{Name: "agent", Image: "localhost/weft:v1"}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	k.Fail(k.progress)
	k.OnExec(k.exec)
	return k
}

// progress makes the objects ready that a client asks for.
func (k *kubelets) progress(r *http.Request) int {
	parts := strings.Split(r.URL.Path, "/")
	name := parts[len(parts)-1]
	if r.Method != http.MethodGet {
		return 0
	}
	var pod corev1.Pod
	var network v1.CustomNetwork
	switch {
	case strings.Contains(r.URL.Path, "/customnetworks/weft-check-") &&
		k.Object("customnetworks.contivpp.io", "", name, &network):
		k.networks[name] = network.Spec
		network.Status.Conditions = v1.Conditions{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
		k.Put("customnetworks.contivpp.io", &network)
	case strings.Contains(r.URL.Path, "/namespaces/weft-check-") && k.Object("pods", parts[4], name, &pod):
		k.seen[name] = pod.DeepCopy()
		if pod.Spec.NodeName == k.refuse {
			return 0
		}
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: k.addresses[name]}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "probe", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		}
		k.Put("pods", &pod)
	}
	return 0
}

func (k *kubelets) exec(x k8stest.Exec) int {
	if x.Command[1] != "probe" || x.Container != "probe" {
		k.t.Errorf("run %q in %s", x.Command, x.Container)
		return 1
	}
	if x.Command[2] == "interfaces" {
		last := k.addresses[x.Pod][len("10.1."):]
		_, _ = fmt.Fprintf(x.Out,
			`[{"name": "eth0", "mtu": 1450, "addresses": [%q]}, {"name": "tap0", "mtu": 1450, "addresses": ["198.18.%s"]},
			{"name": "memif0", "mtu": 1450, "memif": true, "addresses": ["198.19.%[2]s"]}]`, k.addresses[x.Pod], last)
		return 0
	}
	var probes []probe.Probe
	if err := json.Unmarshal([]byte(x.Command[3]), &probes); err != nil {
		k.t.Error(err)
	}
	for _, p := range probes {
		line, _ := json.Marshal(probe.Outcome{ID: p.ID, Took: 310 * time.Microsecond, Error: k.outcome(p)})
		_, _ = fmt.Fprintf(x.Out, "%s\n", line)
		if k.endless {
			_, _ = io.Copy(io.Discard, x.In)
			return 1
		}
	}
	return 0
}

// observer passes an output on, and to a function.
type observer struct {
	to      io.Writer
	written func(text string)
}

func (o observer) Write(p []byte) (int, error) {
	if o.written != nil {
		o.written(string(p))
	}
	return o.to.Write(p)
}

// check runs kubectl weft check and requires that it deletes its objects.
func (k *kubelets) check(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	k.t.Helper()
	var out, failures bytes.Buffer
	env := ctl.Env{In: strings.NewReader(""), Out: &out, Err: observer{&failures, k.written}, Plugin: true}
	code, err := checkedMain(ctx, env, append([]string{"check", "--kubeconfig", k.kubeconfig}, args...))
	if err != nil {
		k.t.Error(err)
	}
	created := 0
	deleted := 0
	for _, request := range k.Requests() {
		switch {
		case strings.HasPrefix(request, "POST /api/v1/namespaces ") || request == "POST /api/v1/namespaces",
			request == "POST /apis/contivpp.io/v1/customnetworks":
			created++
		case strings.HasPrefix(request, "DELETE /api/v1/namespaces/weft-check-"),
			strings.HasPrefix(request, "DELETE /apis/contivpp.io/v1/customnetworks/weft-check-"):
			deleted++
		}
	}
	if keeps := slices.Contains(args, "--keep"); created != 3 || !keeps && deleted != 3 || keeps && deleted != 0 {
		k.t.Errorf("created %d objects, deleted %d", created, deleted)
	}
	return out.String(), failures.String(), code
}

func TestCheckProbesEachInterfaceOnBothNodes(t *testing.T) {
	k := newKubelets(t, "n1", "n2")
	out, failures, code := k.check(t.Context(), "--dns", "kubernetes.default")
	if code != 0 || !strings.HasSuffix(out, "\n24 passed, 0 failed, 0 skipped\n") {
		t.Errorf("exit code %d: %s\n%s", code, out, failures)
	}
	for _, want := range []string{
		"eth0 IPv4 ping same node 10.1.0.3 passed 310µs",
		"eth0 IPv4 MTU other node", "tap0 IPv4 UDP other node 198.18.1.2",
		"memif0 IPv4 ping same node", "node IPv4 TCP own node 192.0.2.1", "DNS cluster kubernetes.default",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if len([]rune(line)) > 81 {
			t.Errorf("more than 80 columns: %s", line)
		}
	}
	pod := k.seen["far"]
	if pod.Spec.NodeName != "n2" || pod.Spec.Containers[0].Image != "localhost/weft:v1" ||
		!strings.Contains(pod.Annotations["contivpp.io/custom-if"], "memif0/memif/weft-check-") {
		t.Errorf("pod %+v", pod)
	}
	if !strings.Contains(failures, "passed  eth0 IPv4 TCP to 10.1.1.2 (other node)\n") {
		t.Errorf("progress %s", failures)
	}
}

func TestCheckWithoutAnAPIServerPrintsOnlyTheError(t *testing.T) {
	a := newAgents(t, says, "n1")
	a.Disconnect()
	var out, failures strings.Builder
	env := ctl.Env{In: strings.NewReader(""), Out: &out, Err: &failures, Plugin: true}
	code := ctl.Main(t.Context(), env, []string{"check", "--kubeconfig", a.kubeconfig})
	if code != 1 || out.String() != "" || !strings.Contains(failures.String(), "check: ") {
		t.Errorf("exit code %d, output %q, error %q", code, out.String(), failures.String())
	}
}

func TestFollowedEventsHaveNoEnd(t *testing.T) {
	var out, failures strings.Builder
	env := ctl.Env{In: strings.NewReader(""), Out: &out, Err: &failures}
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code := ctl.Main(limited, env, []string{"events", "-f", "--until", "1m"})
	if want := "events: -f prints new events, and --until excludes them"; code != 2 ||
		!strings.Contains(failures.String(), want) {
		t.Errorf("exit code %d, output %q, error %q, want %q", code, out.String(), failures.String(), want)
	}
}

// The API server accepts only the canonical text of a CIDR.
func TestNetworksOfTheCheckAreValid(t *testing.T) {
	k := newKubelets(t, "n1")
	k.check(t.Context())
	if len(k.networks) != 2 {
		t.Errorf("networks %v", k.networks)
	}
	for name, spec := range k.networks {
		if len(spec.CIDRs) != 2 {
			t.Errorf("%s has %v, although the node has both families", name, spec.CIDRs)
		}
		for _, c := range spec.CIDRs {
			if p := c.Prefix(); !p.IsValid() || p.Masked().String() != string(c) {
				t.Errorf("%s: %s is not canonical", name, c)
			}
		}
	}
}

func TestCheckNamesTheFailedPathAndTheNextCommand(t *testing.T) {
	k := newKubelets(t, "n1", "n2")
	k.outcome = func(p probe.Probe) string {
		if p.To.String() == "10.1.1.2" && p.Kind == probe.Full {
			return "no reply within 3s"
		}
		return ""
	}
	out, failures, code := k.check(t.Context())
	if code != 1 || !strings.HasSuffix(failures, "kubectl weft: check: 1 test failed\n") ||
		!strings.Contains(out, "\neth0 IPv4 MTU, other node, 10.1.1.2: no reply within 3s\n  next: ") {
		t.Errorf("exit code %d: %s\n%s", code, out, failures)
	}
}

func TestCheckReportsAPodThatDoesNotStart(t *testing.T) {
	k := newKubelets(t, "n1", "n2")
	k.refuse = "n2"
	out, _, code := k.check(t.Context(), "--pod-timeout", "200ms")
	if code != 1 ||
		!strings.Contains(out,
			"start a pod, node n2, far: it does not run: kubelet of node n2 has not started it\n  next: kubectl weft events --node n2\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if !strings.Contains(out, "same node") || strings.Contains(out, "10.1.1.2") {
		t.Errorf("the other pods are not probed: %s", out)
	}
}

func TestInterruptedCheckDeletesItsObjects(t *testing.T) {
	k := newKubelets(t, "n1")
	k.endless = true
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	k.written = func(text string) {
		if strings.HasPrefix(text, "passed  eth0") {
			stop()
		}
	}
	_, failures, code := k.check(ctx)
	if code != 1 || !strings.HasSuffix(failures, "kubectl weft: check: interrupted\n") {
		t.Errorf("exit code %d: %s", code, failures)
	}
}

func TestKeptObjectsAreNamed(t *testing.T) {
	k := newKubelets(t, "n1")
	_, failures, code := k.check(t.Context(), "--keep")
	if code != 0 ||
		!strings.Contains(failures,
			"to delete them: kubectl delete namespace,customnetwork -l contivpp.io/connectivity-test=weft-check-") {
		t.Errorf("exit code %d: %s", code, failures)
	}
}

func TestServiceWithoutKubeProxyIsSkipped(t *testing.T) {
	k := newKubelets(t, "n1")
	k.Fail(func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/services/server") {
			var s corev1.Service
			if k.Object("services", strings.Split(r.URL.Path, "/")[4], "server", &s) {
				s.Spec.ClusterIPs = []string{"10.96.0.7"}
				k.Put("services", &s)
			}
		}
		return k.progress(r)
	})
	k.outcome = func(p probe.Probe) string {
		if p.To.String() == "10.96.0.7" {
			return "no reply within 3s"
		}
		return ""
	}
	out, _, code := k.check(t.Context())
	if code != 0 || !strings.Contains(out, "no kube-proxy was found") ||
		!strings.HasSuffix(out, " 0 failed, 1 skipped\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestCheckWithoutAClusterSaysSo(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	var out, failures bytes.Buffer
	code := ctl.Main(t.Context(), ctl.Env{In: strings.NewReader(""), Out: &out, Err: &failures}, []string{"check"})
	want := "weftctl: check needs a cluster: no API server to ask: there is neither a kubeconfig (--kubeconfig, KUBECONFIG, ~/.kube/config) nor a pod's service account\n"
	if code != 1 || failures.String() != want || out.Len() > 0 {
		t.Errorf("exit code %d: %s%s", code, out.String(), failures.String())
	}
}
