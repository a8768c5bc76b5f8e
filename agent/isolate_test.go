package agent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// The test covers a bug: two running pods had one address, because another node had claimed the block of an absent
// node.
func TestPodsWithAddressesOfAnotherNodeAreIsolated(t *testing.T) {
	server := k8stest.New(t)
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/24"},
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	a := l.pod("a")
	l.put(server, a, nil)
	l.cni("ADD", a, nil)
	var taken v1.IPBlock
	for _, name := range []string{"10.9.0.0-26", "10.9.0.64-26", "10.9.0.128-26", "10.9.0.192-26"} {
		if server.Object("ipblocks.contivpp.io", "", name, &taken) {
			break
		}
	}
	if len(taken.OwnerReferences) > 0 {
		t.Errorf("owners of the block: %v", taken.OwnerReferences)
	}
	server.Remove("ipblocks.contivpp.io", "", taken.Name)
	server.Put("ipblocks.contivpp.io", &v1.IPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: taken.Name},
		Spec:       v1.IPBlockSpec{CIDR: taken.Spec.CIDR, Pool: "pods", Node: "n2"},
	})

	l.eventually("the pod is isolated, with the reason", func() bool {
		listed, err := l.Weftctl(t.Context(), "quarantine", "list", "-o", "json")
		return err == nil && strings.Contains(listed, `"lab"`) &&
			strings.Contains(listed, "node n2 owns its address 10.9.0.")
	})
	l.eventually("an Event on the pod has the reason", func() bool {
		for _, e := range eventsOf(t, server) {
			if e.Type == corev1.EventTypeWarning && e.Reason == "WeftQuarantined" && e.InvolvedObject.Name == "a" {
				return true
			}
		}
		return false
	})
	l.eventually("the announcement follows", func() bool {
		var own v1.NodeNetwork
		server.Object("nodenetworks.contivpp.io", "", node.Name, &own)
		c := meta.FindStatusCondition(own.Status.Conditions, v1.ConditionAddresses)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "pod lab/a")
	})
	if objects, err := l.Weftctl(t.Context(), "objects", "vpp.interface"); err != nil ||
		strings.Contains(objects, "eth0") {
		t.Errorf("the pod's interface still exists in the dataplane: %v\n%s", err, objects)
	}
	l.cni("DEL", a, nil)
	l.eventually("the isolation ends with the pod", func() bool {
		listed, err := l.Weftctl(t.Context(), "quarantine", "list")
		return err == nil && !strings.Contains(listed, "lab/a")
	})
}
