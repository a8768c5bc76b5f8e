package agent

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/node"
)

// eventsOf returns the Events on pods of the lab.
func eventsOf(t *testing.T, server *k8stest.Server) []corev1.Event {
	t.Helper()
	client, err := client.New(server.Connection())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Events("lab").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestFailedAddIsReportedAsAnEvent(t *testing.T) {
	server := k8stest.New(t)
	l := clusterLabWith(t, server, node.Options{HTTP: endpointAddress})
	l.eventually("the agent has the cluster's objects", func() bool {
		return len(l.logged("the cluster is known")) > 0
	})
	unknown := l.pod("unknown")
	taken := l.pod("taken")
	l.put(server, unknown, map[string]string{"contivpp.io/custom-if": "b1/tap/nowhere"})
	l.put(server, taken, nil)
	netnstest.Do(t, taken.Netns, func() { occupyDefaultRoute(t) })
	for range 3 {
		l.fails(unknown)
	}
	l.fails(taken)
	var output map[string]corev1.Event
	l.eventually("both pods have their Event", func() bool {
		list := eventsOf(t, server)
		output = map[string]corev1.Event{}
		for _, e := range list {
			output[e.InvolvedObject.Name] = e
		}
		return len(list) == 2 && output[unknown.Name].Count == 3
	})
	for p, begin := range map[*node.Pod]string{
		unknown: `interface b1: unknown network "nowhere"`,
		taken:   "interface eth0 of network default: making a route in the pod failed: ",
	} {
		e := output[p.Name]
		if e.Type != "Warning" || e.Reason != "WeftAddFailed" || string(e.InvolvedObject.UID) != "uid-"+p.Name {
			t.Errorf("Event of %s: %+v", p.Name, e)
		}
		if !strings.HasPrefix(e.Message, begin) || strings.Contains(e.Message, p.ContainerID[:12]) {
			t.Errorf("message of %s is %q, want %q, without the sandbox", p.Name, e.Message, begin)
		}
	}
	if !strings.HasSuffix(output[taken.Name].Message, "; everything of it was undone") {
		t.Errorf("message %q", output[taken.Name].Message)
	}
	l.metric("weft_pod_events_dropped_total", is(0))
	server.Disconnect() // the next event cannot be sent
	l.fails(unknown)
	l.metric("weft_pod_events_dropped_total", is(1))
	server.Reconnect()
}

func TestPodInterfacesFollowPodsAndTheirSetting(t *testing.T) {
	const resource = "podinterfaces.contivpp.io"
	l, server := clusterLab(t)
	l.eventually("the agent has the cluster's objects", func() bool {
		return len(l.logged("the cluster is known")) > 0
	})
	a := l.pod("a")
	b := l.pod("b")
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "b1/tap/blue"})
	l.put(server, b, nil)
	l.eventually("the agent has network blue", func() bool { return len(l.logged("(from cluster)")) > 0 })
	l.cni("ADD", a, nil)
	var got v1.PodInterfaces
	l.eventually("the PodInterface of a exists", func() bool { return server.Object(resource, "lab", a.Name, &got) })
	if string(got.Node) != node.Name || got.PodUID != "uid-"+a.Name || got.Sandbox != a.ContainerID ||
		len(got.Interfaces) != 2 || got.Interfaces[1].Network != "blue" {
		t.Errorf("it is %+v", got)
	}
	l.cni("ADD", b, nil)
	l.eventually("the PodInterface of b exists", func() bool { return server.Object(resource, "lab", b.Name, &got) })
	l.restartAfter(func(string) error {
		server.Remove(resource, "lab", a.Name)
		return nil
	})
	l.eventually("a missing PodInterface is created after a restart", func() bool {
		return server.Object(resource, "lab", a.Name, &got)
	})
	l.cni("DEL", a, nil)
	l.eventually("the PodInterface of a is deleted", func() bool {
		return !server.Object(resource, "lab", a.Name, &got)
	})
	off := &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1.WeftConfigSpec{PodInterfaces: ptr.To(false)},
	}
	server.Put("weftconfigs.contivpp.io", off)
	l.eventually("PodInterfaces are deleted when the setting is false", func() bool {
		return !server.Object(resource, "lab", b.Name, &got)
	})
	server.Remove("weftconfigs.contivpp.io", "", "default")
	l.eventually("PodInterfaces are written without a WeftConfig", func() bool {
		return server.Object(resource, "lab", b.Name, &got)
	})
	l.cni("DEL", b, nil)
}

// Annotations of Contiv-VPP, and misspelt ones, were ignored without a message.
func TestUnknownAnnotationIsReportedAsAnEvent(t *testing.T) {
	l, server := clusterLab(t)
	a := l.pod("a")
	l.put(server, a, map[string]string{
		"contivpp.io/custom-if-2":        "t1/tap",
		"contivpp.io/custom-fi":          "t1/tap",
		"contivpp.io/microservice-label": "x",
	})
	l.cni("ADD", a, nil)
	want := []string{
		"unknown annotation contivpp.io/custom-fi; did you mean contivpp.io/custom-if?",
		"unknown annotation contivpp.io/custom-if-2: list all interfaces in contivpp.io/custom-if, separated by commas",
	}
	l.eventually("each annotation is reported", func() bool {
		var texts []string
		for _, e := range eventsOf(t, server) {
			if e.Reason == "WeftUnknownAnnotation" && e.InvolvedObject.Name == "a" {
				texts = append(texts, e.Message)
			}
		}
		slices.Sort(texts)
		return slices.EqualFunc(texts, want, strings.HasPrefix)
	})
	l.cni("DEL", a, nil)
}

func TestEditThatComesTooLateIsReportedAsAnEvent(t *testing.T) {
	l, server := clusterLab(t)
	a := l.pod("a")
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap", "other": "x"})
	l.cni("ADD", a, nil)
	reported := func() (texts []string) {
		for _, e := range eventsOf(t, server) {
			if e.Reason == "WeftAnnotationsEdited" {
				texts = append(texts, e.InvolvedObject.Name+": "+e.Message)
			}
		}
		return texts
	}
	// not reported
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap", "other": "y"})
	// takes effect at once
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap", "contivpp.io/service-endpoint-if": "t1"})
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap, t2/tap", "other": "y"})
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap", "contivpp.io/ip-addresses": "10.8.0.77"})
	l.eventually("the edit is reported", func() bool {
		return slices.Equal(reported(), []string{"a: contivpp.io/ip-addresses takes effect when the pod is created again"})
	})
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap", "kubernetes.io/ingress-bandwidth": "1M"})
	l.eventually("a bandwidth limit that comes too late is reported", func() bool {
		return slices.Contains(reported(),
			"a: kubernetes.io/ingress-bandwidth takes effect when the pod is created again")
	})
	off := false
	server.Put("weftconfigs.contivpp.io", &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1.WeftConfigSpec{InterfaceChanges: &off},
	})
	l.eventually("the edit of interfaces is reported while they do not change", func() bool {
		l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap"})
		l.put(server, a, map[string]string{"contivpp.io/custom-if": "t1/tap", pod.AnnotationNetworks: "blue"})
		return slices.Contains(reported(), "a: k8s.v1.cni.cncf.io/networks takes effect when the pod is created again")
	})
	l.cni("DEL", a, nil)
}
