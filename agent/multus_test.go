package agent

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/networkstatus"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/netns"
	"github.com/weftnet/weft/test/node"
)

// define makes a NetworkAttachmentDefinition.
func define(server *k8stest.Server, namespace, name, config string) {
	server.Put("network-attachment-definitions.k8s.cni.cncf.io", &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       npwg.NetworkAttachmentDefinitionSpec{Config: config},
	})
}

// statusEntry is one interface of the network-status annotation.
type statusEntry struct {
	Name, Interface, MAC string
	IPs                  []string
	Default              bool
}

// status returns a pod's network-status annotation, parsed and as text.
func (l *lab) status(server *k8stest.Server, p *node.Pod) (list []statusEntry, text string) {
	l.Helper()
	var o corev1.Pod
	if !server.Object("pods", "lab", p.Name, &o) {
		l.Fatalf("unknown pod %s", p.Name)
	}
	if text = o.Annotations[networkstatus.Annotation]; text == "" {
		return nil, ""
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		l.Fatalf("%s: %v", text, err)
	}
	return list, text
}

// forget removes the annotation of a pod, as another client would.
func (l *lab) forget(server *k8stest.Server, p *node.Pod) {
	var o corev1.Pod
	server.Object("pods", "lab", p.Name, &o)
	delete(o.Annotations, networkstatus.Annotation)
	server.Put("pods", &o)
}

// links returns the names of a result's interfaces in a pod, with their addresses.
func (l *lab) links(result []byte) (list []statusEntry) {
	l.Helper()
	var r struct {
		Interfaces []struct{ Name, MAC, Sandbox string }
		IPs        []struct {
			Address   string
			Interface int
		}
	}
	if err := json.Unmarshal(result, &r); err != nil {
		l.Fatal(err)
	}
	for at, i := range r.Interfaces {
		if i.Sandbox == "" {
			continue
		}
		t := statusEntry{Interface: i.Name, MAC: i.MAC}
		for _, ip := range r.IPs {
			if address, _, _ := strings.Cut(ip.Address, "/"); ip.Interface == at {
				t.IPs = append(t.IPs, address)
			}
		}
		list = append(list, t)
	}
	return list
}

// isAnnotated reports whether a pod's annotation has exactly these interfaces, with these names.
func (l *lab) isAnnotated(server *k8stest.Server, p *node.Pod, got []statusEntry, names ...string) bool {
	status, _ := l.status(server, p)
	return slices.EqualFunc(status, got, func(s, g statusEntry) bool {
		at := slices.IndexFunc(got, func(o statusEntry) bool { return o.Interface == g.Interface })
		return s.Interface == g.Interface && s.MAC == g.MAC && slices.Equal(s.IPs, g.IPs) && s.Name == names[at] &&
			s.Default == (at == 0)
	})
}

const selecting = `[{"name":"blue"},{"name":"wire","namespace":"infra","interface":"w1","mac":"02:00:00:00:00:07"}]`

func TestPodGetsSelectedNetworksAndTheStatusAnnotation(t *testing.T) {
	l, server := clusterLab(t)
	define(server, "lab", "blue", `{"cniVersion":"1.0.0","type":"weft-cni","mode":"delegate","network":"blue"}`)
	define(server, "infra", "wire",
		`{"cniVersion":"1.0.0","name":"wire","plugins":[{"type":"weft-cni","network":"stub","interfaceType":"veth","options":{"mtu":1300}}]}`)
	define(server, "lab", "mac", `{"cniVersion":"1.0.0","type":"macvlan"}`)
	l.eventually("the agent has the cluster's objects", func() bool {
		return len(l.logged("the cluster is known")) > 0
	})
	a := l.pod("a")
	server.Fail(func(r *http.Request) int { // an ADD does not wait for the annotation
		if r.Method == http.MethodPatch {
			return http.StatusInternalServerError
		}
		return 0
	})
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap/stub", pod.AnnotationNetworks: selecting})
	result := l.cni("ADD", a, nil)
	got := l.links(result)
	if len(got) != 4 || got[2].Interface != "net1" || len(got[2].IPs) != 1 ||
		!strings.HasPrefix(got[2].IPs[0], "10.5.0.") || got[3].Interface != "w1" || got[3].MAC != "02:00:00:00:00:07" {
		t.Fatalf("ADD returned %+v", got)
	}
	l.check(a, result)
	server.Fail(nil)
	names := []string{"weft", "stub", "lab/blue", "infra/wire"}
	l.eventually("the pod is annotated", func() bool { return l.isAnnotated(server, a, got, names...) })

	l.forget(server, a)
	l.eventually("the pod is annotated again", func() bool { return l.isAnnotated(server, a, got, names...) })
	l.restartAfter(func(string) error { l.forget(server, a); return nil })
	l.eventually("the next agent annotates the pod", func() bool { return l.isAnnotated(server, a, got, names...) })
	l.check(a, result)

	for name, want := range map[string]string{
		"mac":   `not a configuration of type weft-cni but \"macvlan\"`,
		"none":  "there is no NetworkAttachmentDefinition lab/none",
		"a/b/c": "invalid name of a",
	} {
		b := l.pod("b-" + name[:1])
		l.put(server, b, map[string]string{pod.AnnotationNetworks: "blue," + name})
		if output := l.fails(b); !strings.Contains(output, want) || !strings.Contains(output, "pod lab/"+b.Name) {
			t.Errorf("%s: refused so: %s", name, output)
		}
		if _, text := l.status(server, b); text != "" {
			t.Errorf("a pod with a failed ADD is annotated: %s", text)
		}
	}
	l.cni("DEL", a, nil)
	l.eventually("the annotation is removed", func() bool { _, text := l.status(server, a); return text == "" })
}

func TestAgentLeavesSelectionAndAnnotationToMultus(t *testing.T) {
	t.Setenv("WEFT_KUBERNETES_MULTUS", "true")
	l, server := clusterLab(t)
	define(server, "lab", "blue", `{"type":"weft-cni","network":"blue"}`)
	l.eventually("the agent has the cluster's objects", func() bool {
		return len(l.logged("the cluster is known")) > 0
	})
	a := l.pod("a")
	l.put(server, a, map[string]string{pod.AnnotationNetworks: "blue"})
	if got := l.links(l.cni("ADD", a, nil)); len(got) != 1 {
		t.Errorf("ADD returned %+v, although Multus handles net1", got)
	}
	l.cni("DEL", a, nil)
	for _, r := range server.Requests() {
		if strings.HasPrefix(r, http.MethodPatch+" /api/v1/namespaces/lab/pods/") {
			t.Errorf("the pod was annotated: %s", r)
		}
	}
}

// Another plugin makes the main interface, which does not change; Weft adds the interfaces of the pod's annotation in
// the API server.
func TestBehindAnotherCNIPodsOfAClusterGetTheInterfacesOfTheirAnnotation(t *testing.T) {
	l, server := clusterLab(t)
	define(server, "lab", "blue", `{"type":"weft-cni","network":"blue"}`)
	l.eventually("the agent has the cluster's objects", func() bool {
		return len(l.logged("the cluster is known")) > 0
	})
	a := l.pod("a")
	bare := l.pod("bare")
	var main netlink.Link
	err := netns.Do(a.Netns, func() (err error) {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1480}, PeerName: "other"}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		main, err = netlink.LinkByName("eth0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const before = `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mac":"aa:00:00:00:00:01","sandbox":"/run/netns/x"}],"ips":[{"address":"10.9.0.2/24","interface":0}],"x-vendor":7}`
	chained := map[string]any{"mode": "chained", "prevResult": json.RawMessage(before)}
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "b1/tap/blue", pod.AnnotationNetworks: "blue"})
	l.put(server, bare, nil)

	result := l.cni("ADD", a, chained)
	got := l.links(result)
	if len(got) != 2 || got[0].Interface != "eth0" || got[0].MAC != "aa:00:00:00:00:01" || got[1].Interface != "b1" ||
		len(got[1].IPs) != 1 {
		t.Errorf("ADD returned %+v: want the other CNI's interface, and b1 behind it; Weft ignores selections there",
			got)
	}
	l.cni("CHECK", a, map[string]any{"mode": "chained", "prevResult": json.RawMessage(result)})
	l.eventually("the pod is annotated", func() bool { status, _ := l.status(server, a); return len(status) == 2 })
	if status, _ := l.status(server, a); !status[0].Default || status[0].Interface != "eth0" ||
		status[1].Interface != "b1" || status[1].Name != "blue" {
		t.Errorf("the annotation is %+v", status)
	}
	if passed := strings.TrimSpace(string(l.cni("ADD", bare, chained))); passed != before {
		t.Errorf("a pod without a request to Weft got %s", passed)
	}
	l.cni("DEL", bare, chained)
	l.cni("DEL", a, chained)
	err = netns.Do(a.Netns, func() error {
		is, err := netlink.LinkByName("eth0")
		if err == nil &&
			(is.Attrs().MTU != main.Attrs().MTU ||
				is.Attrs().HardwareAddr.String() != main.Attrs().HardwareAddr.String() || is.Attrs().Alias != "") {
			t.Errorf("the main interface is %+v, before %+v", is.Attrs(), main.Attrs())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, text := l.status(server, bare); text != "" {
		t.Errorf("a pod without an interface of Weft is annotated: %s", text)
	}
	if err := exec.CommandContext(t.Context(), l.Program("weftctl"), "--socket", l.Socket(),
		"status").Run(); err != nil {
		t.Error(err)
	}
}
