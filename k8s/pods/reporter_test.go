package pods_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/pods"
	"github.com/weftnet/weft/pod"
)

const podInterfaces = "podinterfaces.contivpp.io"

func report(name, uid, address string) pods.Report {
	return pods.Report{
		Pod: pod.ID{Namespace: "default", Name: name, UID: uid}, Sandbox: "c-" + uid,
		Interfaces: []v1.PodInterface{{Name: "eth0", Type: "tap", Network: "default", Addresses: []string{address}}},
	}
}

// got formats the PodInterfaces of the API server.
func (l *lab) got(names ...string) string {
	var all []string
	for _, name := range names {
		var o v1.PodInterfaces
		if !l.Object(podInterfaces, "default", name, &o) {
			continue
		}
		owner := ""
		for _, r := range o.OwnerReferences {
			owner += fmt.Sprintf("%s %s %s", r.Kind, r.Name, r.UID)
		}
		all = append(all,
			fmt.Sprintf("%s on %s in %s of %s: %s", name, o.Node, o.Sandbox, owner,
				strings.Join(o.Interfaces[0].Addresses, " ")))
	}
	return strings.Join(all, "; ")
}

// reporter makes a reporter that knows the pods a and b of its node, and that there are no others, which the watch
// shows later.
func (l *lab) reporter() *pods.Reporter {
	l.T.Helper()
	l.Pod("a", "u1", "n1", nil)
	l.Pod("b", "u2", "n1", nil)
	c := l.Known(nil)
	r := c.NewReporter()
	l.Eventually("all pods have been seen", func() bool { return r.Report(l.T.Context(), nil) == nil })
	r.Forget()
	return r
}

func TestPodInterfacesAreReported(t *testing.T) {
	l := newLab(t)
	r := l.reporter()
	tell := func(reports ...pods.Report) {
		t.Helper()
		if err := r.Report(t.Context(), reports); err != nil {
			t.Fatal(err)
		}
	}
	tell(report("a", "u1", "10.1.0.2/32"), report("b", "u2", "10.1.0.3/32"), report("gone", "u9", "10.1.0.4/32"))
	want := "a on n1 in c-u1 of Pod a u1: 10.1.0.2/32; b on n1 in c-u2 of Pod b u2: 10.1.0.3/32"
	if got := l.got("a", "b", "gone"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	asked := len(l.Requests())
	tell(report("a", "u1", "10.1.0.2/32"), report("b", "u2", "10.1.0.3/32"))
	if more := l.Requests()[asked:]; len(more) > 0 {
		t.Errorf("a report without news sent %v", more)
	}
	tell(report("a", "u1", "10.1.0.7/32"))
	if got := l.got("a", "b"); got != "a on n1 in c-u1 of Pod a u1: 10.1.0.7/32" {
		t.Errorf("after b has ended and a has another address: %s", got)
	}
}

// kubectl get showed only the first interface, and the first node of an ExternalInterface.
func TestColumnsShowAllElementsOfAList(t *testing.T) {
	crds, err := filepath.Glob("../manifests/crds/*.yaml")
	if err != nil || len(crds) == 0 {
		t.Fatal(crds, err)
	}
	for _, crd := range crds {
		if text, err := os.ReadFile(crd); err != nil || regexp.MustCompile(`jsonPath: .*\[\*\]`).Match(text) {
			t.Errorf("%s has a column that shows the first element of a list, %v", crd, err)
		}
	}
	l := newLab(t)
	r := l.reporter()
	both := report("a", "u1", "10.1.0.2/32")
	both.Interfaces = []v1.PodInterface{
		{Name: "eth0", Type: "tap", Network: "default", Addresses: []string{"10.1.0.2/32", "fd00::2/128"}}, {
			Name:    "m1",
			Type:    "memif",
			Network: "blue",
		},
	}
	if err := r.Report(t.Context(), []pods.Report{both}); err != nil {
		t.Fatal(err)
	}
	var o v1.PodInterfaces
	l.Object(podInterfaces, "default", "a", &o)
	if want := "eth0 tap default 10.1.0.2/32 fd00::2/128, m1 memif blue"; o.Summary != want {
		t.Errorf("summary %q, want %q", o.Summary, want)
	}
}

func TestPodInterfacesAreCorrectedAfterARestart(t *testing.T) {
	l := newLab(t)
	r := l.reporter()
	for name, node := range map[string]string{"a": "n1", "left": "n1", "b": "n2", "other": "n2"} {
		o := &v1.PodInterfaces{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Node:       v1.NodeName(node),
			PodUID:     "old",
			Sandbox:    "old",
		}
		o.Interfaces = []v1.PodInterface{{Name: "eth0"}}
		l.Put(podInterfaces, o)
	}
	if err := r.Report(t.Context(), []pods.Report{
		report("a", "u1", "10.1.0.2/32"), report("b", "u2", "10.1.0.3/32"),
	}); err != nil {
		t.Fatal(err)
	}
	want := "a on n1 in c-u1 of Pod a u1: 10.1.0.2/32; b on n1 in c-u2 of Pod b u2: 10.1.0.3/32; other on n2 in old of : "
	if got := l.got("a", "b", "left", "other"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, request := range l.Requests() {
		if strings.HasPrefix(request, "GET /apis/contivpp.io/v1/podinterfaces?") &&
			!strings.Contains(request, "fieldSelector=node%3Dn1") {
			t.Errorf("it reads other nodes' too: %s", request)
		}
	}
}

func TestAFailedReportIsRetried(t *testing.T) {
	l := newLab(t)
	r := l.reporter()
	one := report("a", "u1", "10.1.0.2/32")
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		l.Fail(func(r *http.Request) int {
			if r.Method == method && strings.HasSuffix(r.URL.Path, "/podinterfaces") {
				return http.StatusServiceUnavailable
			}
			return 0
		})
		if err := r.Report(t.Context(), []pods.Report{one}); err == nil {
			t.Errorf("%s fails and Report returns no error", method)
		}
	}
	l.Fail(nil)
	if err := r.Report(t.Context(), []pods.Report{one}); err != nil || l.got("a") == "" {
		t.Errorf("afterwards: %v, %q", err, l.got("a"))
	}
}
