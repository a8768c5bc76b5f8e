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
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: npwg.NetworkAttachmentDefinitionSpec{Config: config},
	})
}

// told is one interface of the annotation network-status.
type told struct {
	Name, Interface, MAC string
	IPs                  []string
	Default              bool
}

// status is what a pod is told, and the text of it.
func (l *lab) status(server *k8stest.Server, p *node.Pod) (list []told, text string) {
	l.Helper()
	var o corev1.Pod
	if !server.Object("pods", "lab", p.Name, &o) {
		l.Fatalf("there is no pod %s", p.Name)
	}
	if text = o.Annotations[networkstatus.Annotation]; text == "" {
		return nil, ""
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		l.Fatalf("%s: %v", text, err)
	}
	return list, text
}

// forget takes the status of a pod away, as another client would.
func (l *lab) forget(server *k8stest.Server, p *node.Pod) {
	var o corev1.Pod
	server.Object("pods", "lab", p.Name, &o)
	delete(o.Annotations, networkstatus.Annotation)
	server.Put("pods", &o)
}

// links names the interfaces of a result that a pod has, with their addresses.
func (l *lab) links(result []byte) (list []told) {
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
		t := told{Interface: i.Name, MAC: i.MAC}
		for _, ip := range r.IPs {
			if address, _, _ := strings.Cut(ip.Address, "/"); ip.Interface == at {
				t.IPs = append(t.IPs, address)
			}
		}
		list = append(list, t)
	}
	return list
}

// tells reports whether a pod is told just that, with these names.
func (l *lab) tells(server *k8stest.Server, p *node.Pod, got []told, names ...string) bool {
	status, _ := l.status(server, p)
	return slices.EqualFunc(status, got, func(s, g told) bool {
		at := slices.IndexFunc(got, func(o told) bool { return o.Interface == g.Interface })
		return s.Interface == g.Interface && s.MAC == g.MAC && slices.Equal(s.IPs, g.IPs) && s.Name == names[at] && s.Default == (at == 0)
	})
}

const selecting = `[{"name":"blue"},{"name":"wire","namespace":"infra","interface":"w1","mac":"02:00:00:00:00:07"}]`

func TestAPodOfAClusterGetsWhatItSelectsAndIsToldWhatItGot(t *testing.T) {
	l, server := clusterLab(t)
	define(server, "lab", "blue", `{"cniVersion":"1.0.0","type":"weft-cni","mode":"delegate","network":"blue"}`)
	define(server, "infra", "wire", `{"cniVersion":"1.0.0","name":"wire","plugins":[{"type":"weft-cni","network":"stub","interfaceType":"veth","options":{"mtu":1300}}]}`)
	define(server, "lab", "mac", `{"cniVersion":"1.0.0","type":"macvlan"}`)
	l.eventually("the cluster is known", func() bool { return len(l.logged("the cluster is known")) > 0 })
	a := l.pod("a")
	server.Fail(func(r *http.Request) int { // the status is nothing that an ADD waits for
		if r.Method == http.MethodPatch {
			return http.StatusInternalServerError
		}
		return 0
	})
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap/stub", pod.AnnotationNetworks: selecting})
	result := l.cni("ADD", a, nil)
	got := l.links(result)
	if len(got) != 4 || got[2].Interface != "net1" || len(got[2].IPs) != 1 || !strings.HasPrefix(got[2].IPs[0], "10.5.0.") || got[3].Interface != "w1" || got[3].MAC != "02:00:00:00:00:07" {
		t.Fatalf("ADD gave %+v", got)
	}
	l.check(a, result)
	server.Fail(nil)
	names := []string{"weft", "stub", "lab/blue", "infra/wire"}
	l.eventually("the pod is told", func() bool { return l.tells(server, a, got, names...) })

	l.forget(server, a)
	l.eventually("the pod is told again", func() bool { return l.tells(server, a, got, names...) })
	l.restartAfter(func(string) error { l.forget(server, a); return nil })
	l.eventually("the next agent tells the pod", func() bool { return l.tells(server, a, got, names...) })
	l.check(a, result)

	for name, want := range map[string]string{"mac": `not a configuration of type weft-cni but \"macvlan\"`, "none": "there is no NetworkAttachmentDefinition lab/none", "a/b/c": "invalid name of a"} {
		b := l.pod("b-" + name[:1])
		l.put(server, b, map[string]string{pod.AnnotationNetworks: "blue," + name})
		if said := l.fails(b); !strings.Contains(said, want) || !strings.Contains(said, "pod lab/"+b.Name) {
			t.Errorf("%s: refused so: %s", name, said)
		}
		if _, text := l.status(server, b); text != "" {
			t.Errorf("a pod that got nothing is told %s", text)
		}
	}
	l.cni("DEL", a, nil)
	l.eventually("what it was told is withdrawn", func() bool { _, text := l.status(server, a); return text == "" })
}

func TestWhereMultusIsItTellsPodsAndSelectsForThem(t *testing.T) {
	t.Setenv("WEFT_KUBERNETES_MULTUS", "true")
	l, server := clusterLab(t)
	define(server, "lab", "blue", `{"type":"weft-cni","network":"blue"}`)
	l.eventually("the cluster is known", func() bool { return len(l.logged("the cluster is known")) > 0 })
	a := l.pod("a")
	l.put(server, a, map[string]string{pod.AnnotationNetworks: "blue"})
	if got := l.links(l.cni("ADD", a, nil)); len(got) != 1 {
		t.Errorf("ADD gave %+v, and net1 is Multus' to ask for", got)
	}
	l.cni("DEL", a, nil)
	for _, r := range server.Requests() {
		if strings.HasPrefix(r, http.MethodPatch+" /api/v1/namespaces/lab/pods/") {
			t.Errorf("the pod was annotated: %s", r)
		}
	}
}

// A node whose main CNI is another: Weft adds what the API server says that the pod wants, and the main interface stays as
// that one made it.
func TestBehindAnotherCNIPodsOfAClusterGetWhatTheyAskWeftFor(t *testing.T) {
	l, server := clusterLab(t)
	define(server, "lab", "blue", `{"type":"weft-cni","network":"blue"}`)
	l.eventually("the cluster is known", func() bool { return len(l.logged("the cluster is known")) > 0 })
	a, bare := l.pod("a"), l.pod("bare")
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
	if len(got) != 2 || got[0].Interface != "eth0" || got[0].MAC != "aa:00:00:00:00:01" || got[1].Interface != "b1" || len(got[1].IPs) != 1 {
		t.Errorf("ADD gave %+v: want the other CNI's interface, and b1 behind it; selections are not Weft's there", got)
	}
	l.cni("CHECK", a, map[string]any{"mode": "chained", "prevResult": json.RawMessage(result)})
	l.eventually("the pod is told", func() bool { status, _ := l.status(server, a); return len(status) == 2 })
	if status, _ := l.status(server, a); !status[0].Default || status[0].Interface != "eth0" || status[1].Interface != "b1" || status[1].Name != "blue" {
		t.Errorf("the pod is told %+v", status)
	}
	if passed := strings.TrimSpace(string(l.cni("ADD", bare, chained))); passed != before {
		t.Errorf("a pod that asks Weft for nothing got %s", passed)
	}
	l.cni("DEL", bare, chained)
	l.cni("DEL", a, chained)
	err = netns.Do(a.Netns, func() error {
		is, err := netlink.LinkByName("eth0")
		if err == nil && (is.Attrs().MTU != main.Attrs().MTU || is.Attrs().HardwareAddr.String() != main.Attrs().HardwareAddr.String() || is.Attrs().Alias != "") {
			t.Errorf("the main interface is %+v, and was %+v", is.Attrs(), main.Attrs())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, text := l.status(server, bare); text != "" {
		t.Errorf("a pod that got nothing of Weft's is told %s", text)
	}
	if err := exec.CommandContext(t.Context(), l.Program("weftctl"), "--socket", l.Socket(), "status").Run(); err != nil {
		t.Error(err)
	}
}
