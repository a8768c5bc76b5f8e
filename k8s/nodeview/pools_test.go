package nodeview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/nodeview"
)

// without selects objects without a value of a label.
func without(label, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: label, Operator: metav1.LabelSelectorOpNotIn, Values: []string{value}},
	}}
}

// admitted lists the pools for a pod of the namespace on this node.
func admitted(c *nodeview.Cluster, namespace string) string {
	v := c.View()
	var names []string
	for _, p := range v.AllocatorPools() {
		if !p.Disabled && p.Admits(namespace) {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, " ")
}

func TestPoolsAreChosenByLabelsOfNodesAndNamespaces(t *testing.T) {
	l := newLab(t)
	l.Node("n1", func(n *corev1.Node) { n.Labels = map[string]string{"disk": "ssd"} })
	l.Namespace("shop", map[string]string{"team": "x"}, nil)
	l.Namespace("test", nil, nil)
	l.Pool("any", "10.1.0.0/16", 5*time.Hour, nil)
	l.Pool("ssd", "10.2.0.0/16", 4*time.Hour, func(s *v1.IPPoolSpec) { s.NodeSelector = selects("disk", "ssd") })
	l.Pool("dynamic", "10.3.0.0/16", 3*time.Hour, func(s *v1.IPPoolSpec) { s.NodeSelector = without("staticip", "1") })
	l.Pool("x", "10.4.0.0/16", 2*time.Hour, func(s *v1.IPPoolSpec) { s.NamespaceSelector = selects("team", "x") })
	l.Pool("both", "10.5.0.0/16", time.Hour, func(s *v1.IPPoolSpec) {
		s.NodeSelector = selects("disk", "ssd")
		s.NamespaceSelector = without("team", "x")
	})
	c := l.Known(nil)
	is := func(when, namespace, want string) {
		t.Helper()
		l.Eventually(fmt.Sprintf("%s: %s has %q", when, namespace, want), func() bool {
			return admitted(c, namespace) == want
		})
	}
	is("at first", "shop", "any ssd dynamic x")
	is("at first", "test", "any ssd dynamic both")
	is("at first", "unknown", "any ssd dynamic")
	l.Namespace("test", map[string]string{"team": "x"}, nil)
	is("labelled", "test", "any ssd dynamic x")
	l.Node("n1", func(n *corev1.Node) { n.Labels = map[string]string{"staticip": "1"} })
	is("on a node with other labels", "test", "any x")
	v := c.View()
	var claims []string
	for _, p := range v.ClaimedFrom() {
		if !p.Closed {
			claims = append(claims, p.Name)
		}
	}
	if !slices.Equal(claims, []string{"any", "x"}) {
		t.Errorf("blocks are claimed of %v, want those of pools for the node", claims)
	}
	l.Namespace("shop", nil, nil)
	l.Namespace("test", nil, nil)
	is("when no namespace is selected", "shop", "any")
	is("when no namespace is selected", "later", "any")
}

func TestAnInvalidSelectorIsReportedAndSelectsNothing(t *testing.T) {
	l := newLab(t)
	wrong := &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near", Values: []string{"a"}}},
	}
	l.Pool("nodes", "10.1.0.0/16", time.Hour, func(s *v1.IPPoolSpec) { s.NodeSelector = wrong })
	l.Pool("namespaces", "10.2.0.0/16", 2*time.Hour, func(s *v1.IPPoolSpec) { s.NamespaceSelector = wrong })
	c := l.Known(nil)
	faults := fmt.Sprint(c.View().Faults)
	for _, part := range []string{"IPPool nodes: nodeSelector: ", "IPPool namespaces: namespaceSelector: "} {
		if !strings.Contains(faults, part) {
			t.Errorf("faults %s, want one that begins with %q", faults, part)
		}
	}
	if got := admitted(c, "default"); got != "" {
		t.Errorf("pods may have addresses of %s", got)
	}
}

func TestAPoolOutsideOfTheClusterCIDRsIsReportedOrRefused(t *testing.T) {
	l := newLab(t)
	l.Pool("p0", "10.1.0.0/17", time.Hour, nil)
	l.Pool("p1", "10.2.0.0/16", time.Hour, nil)
	l.Pool("p2", "fd00:1::/64", time.Hour, nil)
	c := l.Known(nil)
	spec := v1.AddressesSpec{ClusterCIDRs: []v1.CIDR{"10.1.0.0/16", "10.8.0.0/16"}}
	set := func(policy v1.OutsidePolicy) {
		spec.OutsideClusterCIDRs = policy
		l.Put(configs, &v1.WeftConfig{ObjectMeta: named("default"), Spec: v1.WeftConfigSpec{Addresses: spec}})
	}
	is := func(when, used, faults string) {
		t.Helper()
		l.Eventually(fmt.Sprintf("%s: %s are used, faults %s", when, used, faults), func() bool {
			return admitted(c, "default") == used && fmt.Sprint(c.View().Faults) == faults
		})
	}
	const outside = "IPPool p1: 10.2.0.0/16 is not within the cluster's ranges [10.1.0.0/16 10.8.0.0/16]"
	is("without ranges", "p0 p1 p2", "[]")
	set("")
	is("by default", "p0 p1 p2", "["+outside+"; it is used all the same]")
	set(v1.OutsideWarn)
	is("with a warning", "p0 p1 p2", "["+outside+"; it is used all the same]")
	set(v1.OutsideRefuse)
	is("refused", "p0 p2", "["+outside+"]")
	spec.ClusterCIDRs = append(spec.ClusterCIDRs, "10.2.0.0/16", "fd00:2::/32")
	set(v1.OutsideRefuse)
	is("with other ranges",
		"p0 p1",
		"[IPPool p2: fd00:1::/64 is not within the cluster's ranges [10.1.0.0/16 10.8.0.0/16 10.2.0.0/16 fd00:2::/32]]")
	l.Pool("p3", "10.0.0.0/15", 2*time.Hour, nil)
	l.Remove(pools, "", "p0")
	l.Eventually("a pool that is only in part within them", func() bool {
		return strings.Contains(fmt.Sprint(c.View().Faults), "IPPool p3: 10.0.0.0/15 is not within")
	})
}
