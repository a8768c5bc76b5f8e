package controller

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/weftnet/weft/k8s/api/v1"
)

// says writes the announcement of the node n1 with the UID.
func (l *lab) says(c *Controller, node types.UID, ready metav1.ConditionStatus) {
	l.t.Helper()
	said := &v1.NodeNetwork{ObjectMeta: named("n1")}
	said.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: node}}
	said.Status.Conditions = v1.Conditions{{Type: v1.ConditionReady, Status: ready}}
	l.Put(nodeNets, said)
	l.eventually("what the agent says is seen", func() bool {
		return slices.ContainsFunc(c.overview.nodes.All(), func(n *v1.NodeNetwork) bool {
			return n.OwnerReferences[0].UID == node &&
				meta.IsStatusConditionPresentAndEqual(n.Status.Conditions, v1.ConditionReady, ready)
		})
	})
}

// taints returns the taints of n1 after a reconciliation.
func (l *lab) taints(c *Controller) (keys []string) {
	l.t.Helper()
	if err := c.reconciler.reconcile(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	var n corev1.Node
	l.Object("nodes", "", "n1", &n)
	if n.Spec.PodCIDR != "10.8.0.0/24" || n.Labels["zone"] != "a" {
		l.t.Errorf("the node is %+v", n)
	}
	for _, t := range n.Spec.Taints {
		keys = append(keys, t.Key)
	}
	return keys
}

func TestANodeLosesItsTaintWhenItServesPods(t *testing.T) {
	l := newLab(t)
	n := &corev1.Node{ObjectMeta: named("n1"), Spec: corev1.NodeSpec{PodCIDR: "10.8.0.0/24", Taints: []corev1.Taint{
		{Key: "theirs", Effect: corev1.TaintEffectNoSchedule},
		{Key: TaintNotReady, Effect: corev1.TaintEffectNoSchedule},
		{Key: TaintNotReady, Effect: corev1.TaintEffectNoExecute},
	}}}
	n.UID = "new"
	n.Labels = map[string]string{"zone": "a"}
	l.Put("nodes", n)
	both := []string{"theirs", TaintNotReady, TaintNotReady}

	c := l.replica("a", func(c *Config) { c.Untaint = true })
	l.start("a", c.overview.Run)
	l.eventually("everything is seen", func() bool { return c.Ready() == nil })
	if got := l.taints(c); !slices.Equal(got, both) {
		t.Errorf("no node has announced anything, and the taints are %q", got)
	}
	l.says(c, "old", metav1.ConditionTrue)
	if got := l.taints(c); !slices.Equal(got, both) {
		t.Errorf("an earlier node of that name was ready, and the taints are %q", got)
	}
	l.says(c, "new", metav1.ConditionFalse)
	if got := l.taints(c); !slices.Equal(got, both) {
		t.Errorf("the agent does not serve pods, and the taints are %q", got)
	}
	l.says(c, "new", metav1.ConditionTrue)
	if got := l.taints(c); !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("the agent serves pods, and the taints are %q", got)
	}
}

func TestATaintIsNotRemovedWhenTheNodeChangedMeanwhile(t *testing.T) {
	l := newLab(t)
	n := &corev1.Node{ObjectMeta: named("n1"), Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: TaintNotReady}}}}
	l.Put("nodes", n)
	var seen corev1.Node
	l.Object("nodes", "", "n1", &seen)
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "theirs"})
	l.Put("nodes", n)
	c := l.replica("a", nil)
	if err := c.reconciler.taints.remove(t.Context(), &seen); err != nil {
		t.Errorf("that is no fault, the watch shows it: %v", err)
	}
	if l.Object("nodes", "", "n1", &seen); len(seen.Spec.Taints) != 2 {
		t.Errorf("taints %v", seen.Spec.Taints)
	}
}

func TestNodesAreNotWatchedWithoutUntaint(t *testing.T) {
	l := newLab(t)
	c, _ := l.watching("a")
	l.Put("nodes", &corev1.Node{
		ObjectMeta: named("n1"),
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: TaintNotReady}}},
	})
	if err := c.reconciler.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.Requests() {
		if strings.Contains(r, "/api/v1/nodes") {
			t.Errorf("it asked %s", r)
		}
	}
}
