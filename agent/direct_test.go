package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/devicemanager/kubelettest"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/memif"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

// requests returns the annotations that request interfaces, for the configuration of a CNI command.
func requests(interfaces, options string) map[string]any {
	return map[string]any{"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{
		"contivpp.io/custom-if": interfaces, "contivpp.io/custom-if-options": options,
	}}}
}

// podWithMemif makes a pod of the cluster whose container has a memif.
func (l *lab) podWithMemif(server *k8stest.Server, name string) (*node.Pod, kubelettest.Container) {
	l.Helper()
	p := l.pod(name)
	p.Namespace = "lab"
	l.put(server, p, nil)
	containers, err := l.Admit(l.Context(), p, kubelettest.Container{Name: "vnf", Limit: 1})
	if err != nil {
		l.Fatal(err)
	}
	return p, containers[0]
}

// The dataplane does not see the packets of a direct network, so it cannot enforce a policy there: one that selects
// either member disconnects both.
func TestPolicyDisconnectsADirectNetwork(t *testing.T) {
	server := k8stest.New(t)
	server.Put("customnetworks.contivpp.io", &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "pair"}, Spec: v1.CustomNetworkSpec{Type: v1.L2, Direct: true},
	})
	l := clusterLabWith(t, server, node.Options{EnforcePolicies: true, Memifs: 8})
	a, givenA := l.podWithMemif(server, "a")
	b, givenB := l.podWithMemif(server, "b")
	says := func(want string) func() bool {
		return func() bool {
			text, err := l.Weftctl(t.Context(), "pod", "lab/a")
			return err == nil && strings.Contains(strings.Join(strings.Fields(text), " "), want)
		}
	}
	ofA := requests("a1/memif/pair", `{"a1":{"role":"server"}}`)
	ofB := requests("b1/memif/pair", "")
	l.cni("ADD", a, ofA)
	l.eventually("weftctl says that the client is missing",
		says("peer not connected: no pod of this node is the client of network pair"))
	l.cni("ADD", b, ofB)

	var listener *memif.Listener
	err := netns.Do(a.Netns, func() (err error) {
		listener, err = memif.Listen("@weft/a1", memif.ListenOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := listener.Add(memif.Config{ID: 1, Secret: memif.Secret(givenA.Envs["MEMIF_SECRET"])}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(givenB.Mounts[0].HostPath, "d1.sock")
	client, err := memif.Dial(t.Context(),
		memif.ClientConfig{Socket: socket, ID: 1, Secret: memif.Secret(givenB.Envs["MEMIF_SECRET"])},
		memif.ClientEvents{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	isConnected := func() bool { _, connected := client.Info(); return connected }
	l.eventually("weftctl says that it is connected", says("peer connected, b1 of pod lab/b"))

	server.Put("multi-networkpolicies.k8s.cni.cncf.io", &npwg.MultiNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "lab",
			Name:        "deny",
			Annotations: map[string]string{"k8s.v1.cni.cncf.io/policy-for": "pair"},
		},
		Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}},
	})
	l.eventually("the policy disconnects the pods", func() bool { return !isConnected() })
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the client's socket is still there: %v", err)
	}
	l.eventually("weftctl says why", says("peer closed, because policies select a1 of pod lab/a and b1 of pod lab/b"))
	server.Remove("multi-networkpolicies.k8s.cni.cncf.io", "lab", "deny")
	l.eventually("they are connected again", isConnected)

	l.cni("DEL", a, nil)
	l.eventually("a DEL disconnects them", func() bool { return !isConnected() })
	l.cni("DEL", b, nil)
}
