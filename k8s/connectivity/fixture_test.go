package connectivity_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/probe"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/connectivity"
	"github.com/weftnet/weft/k8s/fleet"
	"github.com/weftnet/weft/k8s/k8stest"
)

// cluster is a cluster with one node. Its probe pods start when a client asks for them, and print what the functions
// return.
type cluster struct {
	*k8stest.Server
	t          *testing.T
	interfaces func(x k8stest.Exec) int
	send       func(x k8stest.Exec, probes []probe.Probe) int

	mu      sync.Mutex
	results []connectivity.Result
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{
		Server:     k8stest.New(t),
		t:          t,
		interfaces: printInterfaces,
		send: func(x k8stest.Exec, probes []probe.Probe) int {
			for _, p := range probes {
				printOutcome(x, probe.Outcome{ID: p.ID, Took: time.Millisecond})
			}
			return 0
		},
	}
	c.Put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}})
	c.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "weft-system",
			Name:      "agent-n1",
			Labels:    map[string]string{"app.kubernetes.io/name": "weft", "app.kubernetes.io/component": "agent"},
		},
		Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
	c.Fail(c.progress)
	c.OnExec(c.exec)
	return c
}

// printInterfaces prints the interfaces of a pod without interfaces of its own.
func printInterfaces(x k8stest.Exec) int {
	last := map[string]int{"client": 2, "near": 3}[x.Pod]
	_, _ = fmt.Fprintf(x.Out, `[{"name": "eth0", "mtu": 1450, "addresses": ["10.1.0.%d"]}]`, last)
	return 0
}

func printOutcome(x k8stest.Exec, o probe.Outcome) {
	line, _ := json.Marshal(o) // never fails
	_, _ = fmt.Fprintf(x.Out, "%s\n", line)
}

// progress makes the objects ready that the client asks for.
func (c *cluster) progress(r *http.Request) int {
	parts := strings.Split(r.URL.Path, "/")
	name := parts[len(parts)-1]
	var pod corev1.Pod
	var network v1.CustomNetwork
	switch {
	case r.Method != http.MethodGet:
	case strings.Contains(r.URL.Path, "/customnetworks/") && c.Object("customnetworks.contivpp.io", "", name, &network):
		network.Status.Conditions = v1.Conditions{{Type: v1.ConditionReady, Status: metav1.ConditionTrue}}
		c.Put("customnetworks.contivpp.io", &network)
	case strings.Contains(r.URL.Path, "/namespaces/weft-check-") && c.Object("pods", parts[4], name, &pod):
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		}
		c.Put("pods", &pod)
	}
	return 0
}

func (c *cluster) exec(x k8stest.Exec) int {
	if x.Command[2] == "interfaces" {
		return c.interfaces(x)
	}
	var probes []probe.Probe
	if err := json.Unmarshal([]byte(x.Command[3]), &probes); err != nil {
		c.t.Error(err)
	}
	return c.send(x, probes)
}

func (c *cluster) run() error {
	c.t.Helper()
	return c.runUntil(c.t.Context(), func() {})
}

// runUntil runs a test, and calls reported after each result. Its objects must be deleted at the end.
func (c *cluster) runUntil(ctx context.Context, reported func()) error {
	c.t.Helper()
	api, err := client.New(c.Connection())
	if err != nil {
		c.t.Fatal(err)
	}
	err = connectivity.Run(ctx, connectivity.Config{
		Client: api, Fleet: fleet.New(api, ""), Image: "probe:1", Probe: time.Second, PodReady: time.Minute,
		Progress: func(string) {},
		Report: func(r connectivity.Result) {
			c.mu.Lock()
			c.results = append(c.results, r)
			c.mu.Unlock()
			reported()
		},
	})
	created := 0
	deleted := 0
	for _, request := range c.Requests() {
		created += map[bool]int{true: 1}[request == "POST /api/v1/namespaces" ||
			request == "POST /apis/contivpp.io/v1/customnetworks"]
		deleted += map[bool]int{true: 1}[strings.HasPrefix(request, "DELETE /api/v1/namespaces/weft-check-") ||
			strings.HasPrefix(request, "DELETE /apis/contivpp.io/v1/customnetworks/weft-check-")]
	}
	if created != 3 || deleted != 3 {
		c.t.Errorf("created %d objects, deleted %d", created, deleted)
	}
	return err
}

// passed counts the results of probes that passed.
func (c *cluster) passed() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.results {
		if r.State == connectivity.Passed && r.Test != "start a pod" {
			n++
		}
	}
	return n
}

// reason returns the reason of the first failed result.
func (c *cluster) reason() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.results {
		if r.State == connectivity.Failed {
			return r.Reason
		}
	}
	return ""
}
