package nodeview_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

// permitting is a network that lets routers of the namespaces of a team use an address.
func permitting() v1.CustomNetworkSpec {
	return v1.CustomNetworkSpec{Type: v1.L2, CIDRs: []v1.CIDR{"10.5.0.0/24"}, Permissions: []v1.Permission{{
		PodSelector:       *selects("app", "router"),
		NamespaceSelector: selects("team", "edge"),
		AllowedAddresses:  []v1.AddressOrPrefix{"10.5.0.100"},
		VirtualRouters:    []int32{51},
	}}}
}

// permittedIn names the pods of the only permission of a view.
func permittedIn(v nodeview.View) string {
	if len(v.Networks) != 1 || len(v.Networks[0].Permissions) != 1 {
		return fmt.Sprint(v.Networks, v.Faults)
	}
	return fmt.Sprint(v.Networks[0].Permissions[0].Pods)
}

func TestPermissionsFollowTheLabelsOfPods(t *testing.T) {
	l := newLab(t)
	l.Namespace("default", map[string]string{"team": "edge"}, nil)
	l.Network("site", permitting())
	label := func(name, app, node string) {
		l.Pod(name, "uid-"+name, node, func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} })
	}
	label("one", "router", "n1")
	label("other", "web", "n1")
	label("far", "router", "n2")
	c := l.Known(nil)
	eventually := func(when, want string) {
		t.Helper()
		k8stest.Eventually(t, when, func() bool {
			<-c.Changed()
			return permittedIn(c.View()) == want
		})
	}
	eventually("one is selected", "[default/one]")
	label("other", "router", "n1")
	eventually("other gets the label", "[default/one default/other]")
	label("one", "web", "n1")
	eventually("one loses the label", "[default/other]")
	l.Namespace("default", map[string]string{"team": "shop"}, nil)
	eventually("the namespace is not selected", "[]")
}

// Permissions of an earlier run hold until the API server shows the pods.
func TestPermissionsAreKeptUntilPodsAreKnown(t *testing.T) {
	l := newLab(t)
	l.Network("site", permitting())
	l.Fail(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/pods") {
			return http.StatusForbidden
		}
		return 0
	})
	before := []pod.ID{{Namespace: "default", Name: "one", UID: "1"}}
	var known nodeview.View
	known.Networks = []pod.Network{{Name: "site", Permissions: []pod.Permission{{
		Moving: pod.Moving{
			Addresses:      []netip.Prefix{netip.MustParsePrefix("10.5.0.100/32")},
			VirtualRouters: []int{51},
		},
		Pods: before,
	}}}}
	c := l.Known(func(o *nodeview.Config) { o.Known = &known })
	if v := c.View(); !v.Complete || permittedIn(v) != "[default/one]" {
		t.Errorf("complete %t, permitted to %s", v.Complete, permittedIn(v))
	}
}

func TestSelectorsOfPermissionsAreValidated(t *testing.T) {
	spec := permitting()
	wrong := metav1.LabelSelectorRequirement{Key: "app", Operator: "Near"}
	spec.Permissions[0].PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{wrong}
	_, err := nodeview.NetworkOf(&v1.CustomNetwork{ObjectMeta: named("site"), Spec: spec})
	if err == nil || !strings.Contains(err.Error(), `permissions: [0]: podSelector: "Near" is not a valid label`) {
		t.Errorf("got %v", err)
	}
}
