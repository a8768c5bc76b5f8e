package mesh

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/controller"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
)

// Each replica of a StatefulSet has its addresses and its MAC on any node, and also after its claim was deleted. The
// claims are kept until the StatefulSet is deleted.
func TestReplicasOfAStatefulSetKeepTheirAddresses(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control(func(config *controller.Config) { config.PersistentIPs = true })
	c.meet()
	c.spread("lan", v1.CustomNetworkSpec{Type: v1.L2, CIDRs: []v1.CIDR{"10.5.0.0/24", "fd05::/120"}})
	n1 := c.nodes[0]
	n2 := c.nodes[1]

	first, remove := c.replica(n1, "db-0")
	want := t1Of(t, first)
	claim := c.claim("db-0.t1")
	if got := strings.Join(claim.Status.IPs, " "); len(claim.Status.IPs) != 2 || !strings.HasPrefix(want.addresses, got) {
		t.Fatalf("the claim holds %q, the pod has %q", got, want.addresses)
	}
	if shown := n1.weftctl("addresses"); !strings.Contains(shown, "demo/db-0:t1, IPAMClaim demo/db-0.t1") {
		t.Errorf("weftctl addresses does not show the claim:\n%s", shown)
	}
	sibling, removeSibling := c.replica(n1, "db-1")
	if got := t1Of(t, sibling); got.mac == want.mac || got.addresses == want.addresses {
		t.Errorf("two replicas have %+v", got)
	}
	removeSibling()

	c.server.Remove(claimResource, "demo", "db-0.t1") // by a user, while the pod runs
	k8stest.Eventually(t, "the claim is made again and holds the addresses", func() bool {
		again := c.claim("db-0.t1")
		return again.UID != claim.UID && strings.Join(again.Status.IPs, " ") == strings.Join(claim.Status.IPs, " ")
	})

	remove() // scaled down
	for _, m := range c.nodes {
		must.Succeed(t, m.StopAgent())
		m.restart(t)
		m.wantFirstResyncIdle(t)
	}
	if shown := n1.weftctl("addresses"); !strings.Contains(shown, "IPAMClaim demo/db-0.t1") {
		t.Errorf("weftctl addresses does not show the claim of a pod that is away:\n%s", shown)
	}
	second, remove := c.replica(n2, "db-0")
	if got := t1Of(t, second); got != want {
		t.Errorf("the replica on the other node has %+v, want %+v", got, want)
	}
	remove()

	// The StatefulSet is deleted, and the API server's garbage collector deletes what it owns.
	if owners := c.claim("db-0.t1").OwnerReferences; len(owners) != 1 || owners[0].UID != "uid of db" {
		t.Errorf("the claim belongs to %+v", owners)
	}
	c.server.Remove(claimResource, "demo", "db-0.t1")
	tries := 0
	address, _, _ := strings.Cut(claim.Status.IPs[0], "/")
	k8stest.Eventually(t, "the addresses are free", func() bool {
		tries++
		_, err := n2.tryOn("lan", "other-"+string(rune('a'+tries)), `{"ips": ["`+address+`"]}`)
		return err == nil
	})
	if left := c.claim("db-0.t1"); left.Name != "" {
		t.Errorf("the claim was made without a pod: %+v", left)
	}
}

func TestPersistentIPsOfOtherPodsAreRefused(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control(func(config *controller.Config) { config.PersistentIPs = true })
	c.meet()
	c.spread("lan", v1.CustomNetworkSpec{Type: v1.L2, CIDRs: []v1.CIDR{"10.5.0.0/24"}})
	n1 := c.nodes[0]
	c.server.Put(claimResource, &npwg.IPAMClaim{ // of a stranger
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "db-3.t1", UID: "strange"},
		Spec:       npwg.IPAMClaimSpec{Network: "default", Interface: "t1"},
	})
	for _, tt := range []struct{ pod, controller, want string }{
		{"db-2", "ReplicaSet", "this one belongs to ReplicaSet db; name an IPAMClaim by the option ipamClaim"},
		{"db-3", "StatefulSet", "IPAMClaim demo/db-3.t1 is for network default, not for lan"},
	} {
		p := c.replicaPod(n1, tt.pod, tt.controller)
		runtime, err := n1.Runtime(t.Output())
		must.Succeed(t, err)
		if _, err := runtime.Add(t.Context(), p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s of a %s: %v", tt.pod, tt.controller, err)
		}
		must.Succeed(t, runtime.Del(context.Background(), p))
	}
}

// claim returns a claim of the namespace demo; empty if there is none.
func (c *cluster) claim(name string) (claim npwg.IPAMClaim) {
	c.server.Object(claimResource, "demo", name, &claim)
	return claim
}

// replicaPod makes a sandbox, and an object of the API server, for a pod with persistent addresses of an interface t1
// on the network lan.
func (c *cluster) replicaPod(m *machine, name, kind string) *node.Pod {
	c.t.Helper()
	p, err := m.NewPod(name)
	must.Succeed(m.t, err)
	p.UID = "uid-of-" + name + "-on-" + m.name
	p.Annotations = map[string]string{
		"contivpp.io/custom-if":         "t1/tap/lan",
		"contivpp.io/custom-if-options": `{"t1": {"persistentIPs": true}}`,
	}
	yes := true
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "demo", Name: name, UID: types.UID(p.UID), Annotations: p.Annotations,
		Labels: map[string]string{"statefulset.kubernetes.io/pod-name": name},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: kind, Name: "db", UID: "uid of db", Controller: &yes,
		}},
	}}
	object.Spec.NodeName = m.name
	c.server.Put("pods", object)
	return p
}

// replica connects a replica. The returned function deletes it.
func (c *cluster) replica(m *machine, name string) (p *node.Pod, remove func()) {
	c.t.Helper()
	p = c.replicaPod(m, name, "StatefulSet")
	runtime, err := m.Runtime(m.t.Output())
	must.Succeed(m.t, err)
	_, err = runtime.Add(m.t.Context(), p)
	must.Succeed(m.t, err)
	removed := false
	remove = func() {
		if removed {
			return
		}
		removed = true
		c.server.Remove("pods", "demo", name)
		must.Succeed(m.t, runtime.Del(context.Background(), p))
	}
	m.t.Cleanup(remove)
	return p, remove
}
