package agent

import (
	"bytes"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/dataplane"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// clusterLab is a node of a cluster, with ranges of addresses.
func clusterLab(t *testing.T) (*lab, *k8stest.Server) {
	t.Helper()
	server := k8stest.New(t)
	return clusterLabWith(t, server, node.Options{}), server
}

func clusterLabWith(t *testing.T, server *k8stest.Server, o node.Options) *lab {
	t.Helper()
	o.Verify = true
	return plainClusterLab(t, server, o)
}

func plainClusterLab(t *testing.T, server *k8stest.Server, o node.Options) *lab {
	t.Helper()
	netnstest.RequireTap(t)
	uplinkOf(t)
	server.Put("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: "node-uid"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.8.0.0/24", PodCIDRs: []string{"10.8.0.0/24", "fd00:8::/64"}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.200.0.11"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	server.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}) // of the pods
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "blue"},
		Spec:       v1.CustomNetworkSpec{Type: v1.L2, CIDRs: []v1.CIDR{"10.5.0.0/24"}},
	})
	o.Kubeconfig = kubeconfigOf(t, server)
	return newPlainLab(t, programs.Build(t), o)
}

// kubeconfigOf returns the path of a kubeconfig for the server.
func kubeconfigOf(t *testing.T, server *k8stest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := api.NewConfig()
	config.Clusters["it"] = &api.Cluster{Server: server.Connection().Host}
	config.Contexts["it"] = &api.Context{Cluster: "it"}
	config.CurrentContext = "it"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// customInterfaces is the annotation for extra interfaces.
const customInterfaces = "contivpp.io/custom-if"

// put adds a pod to the API server.
func (l *lab) put(server *k8stest.Server, p *node.Pod, annotations map[string]string) {
	annotations = maps.Clone(annotations)
	if extra, has := annotations[customInterfaces]; has {
		annotations[customInterfaces] = dataplane.CustomInterfaces(extra)
	}
	server.Put("pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "lab",
			Name:        p.Name,
			UID:         types.UID("uid-" + p.Name),
			Annotations: annotations,
		},
		Spec: corev1.PodSpec{NodeName: node.Name},
	})
}

// eventually waits until a condition is true.
func (l *lab) eventually(what string, try func() bool) {
	l.Helper()
	k8stest.Eventually(l.T, what, try)
}

// fails executes ADD for a pod and returns the plugin's output, which must be an error.
func (l *lab) fails(p *node.Pod) string {
	l.Helper()
	out, failed := l.tries("ADD", p)
	if !failed {
		l.Errorf("ADD of %s succeeded: %s", p.Name, out)
	}
	return out
}

// tries executes the plugin for a pod, and returns its output and whether it failed.
func (l *lab) tries(verb string, p *node.Pod) (out string, failed bool) {
	l.Helper()
	return l.triesWith(verb, p, nil)
}

// triesWith is tries with more in the network configuration.
func (l *lab) triesWith(verb string, p *node.Pod, more map[string]any) (out string, failed bool) {
	l.Helper()
	cmd := exec.CommandContext(l.Context(), l.Program("weft-cni"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+p.ContainerID, "CNI_NETNS="+p.Netns,
		"CNI_IFNAME=eth0", "CNI_PATH=/", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=lab;K8S_POD_NAME="+p.Name)
	cmd.Stdin = bytes.NewReader(l.netconf(more))
	printed, err := cmd.Output()
	return string(printed), err != nil
}

func TestAgentFollowsTheObjectsOfTheAPIServer(t *testing.T) {
	l, server := clusterLab(t)
	l.eventually("the agent has the cluster's network", func() bool {
		return len(l.logged("the cluster is known")) > 0
	})
	a := l.pod("a")
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "b1/tap/blue"})
	result := l.cni("ADD", a, nil)
	addresses := l.addresses(result)
	if len(addresses) != 3 || !netip.MustParsePrefix("10.8.0.0/24").Contains(addresses[0]) ||
		!netip.MustParsePrefix("10.5.0.0/24").Contains(addresses[2]) {
		t.Errorf("ADD returned %v: want one of each of the node's ranges, and one of network blue", addresses)
	}

	server.Put("weftconfigs.contivpp.io", &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1.WeftConfigSpec{Paused: true},
	})
	b := l.pod("b")
	l.put(server, b, nil)
	var output string
	l.eventually("the pause delays pods", func() bool {
		output = l.fails(b)
		return strings.Contains(output, `"code": 11`) && len(l.logged(`new pods are paused"`)) == 1
	})
	if output, failed := l.tries("STATUS", b); !failed || !strings.Contains(output, `"code": 50`) ||
		!strings.Contains(output, "paused") {
		t.Errorf("STATUS during a pause: %s", output)
	}
	server.Remove("weftconfigs.contivpp.io", "", "default")
	l.eventually("the pause ends", func() bool {
		return exec.CommandContext(t.Context(), l.Program("weftctl"), "--socket", l.Socket(), "status").Run() == nil &&
			len(l.logged("new pods are served again")) == 1
	})

	server.Disconnect() // the API server is down while the agent restarts
	l.restartAfter(func(string) error { return nil })
	if operations := l.resyncs(); len(operations) > 0 {
		t.Errorf("operations of the new agent's resync without its API server: %v", operations)
	}
	l.check(a, result)
	if output := l.fails(b); !strings.Contains(output, `"code": 11`) ||
		!strings.Contains(output, "no answer of the API server") {
		t.Errorf("error of an unknown pod: %s", output)
	}
	if out, err := exec.CommandContext(t.Context(), l.Program("weft-agent"), "health", "--alive", "--socket",
		l.Socket()).CombinedOutput(); err != nil {
		t.Errorf("kubelet would restart the agent without its API server: %v: %s", err, out)
	}
	c := l.pod("c") // with annotations of the runtime
	l.cni("ADD", c, map[string]any{
		"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{}},
	})
	l.cni("DEL", c, nil)
	server.Reconnect()
	l.eventually("the API server is back", func() bool { return len(l.logged("the cluster is known")) > 1 })
	l.cni("ADD", b, nil)
	l.cni("DEL", a, nil)
	l.cni("DEL", b, nil)
	// Pods, the pause and the node's heartbeats do not change networks: one event for each agent.
	if set := l.logged("networks (from cluster)"); len(set) != 2 {
		t.Errorf("networks were set %d times: %q", len(set), set)
	}
}
