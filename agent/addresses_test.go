package agent

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

func TestAddressCheckFindsNoProblemsOnANodeThatLendsAddresses(t *testing.T) {
	server := k8stest.New(t)
	strict := false
	server.Put("ippools.contivpp.io", &v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.IPPoolSpec{CIDR: "10.9.0.0/24", StrictAffinity: &strict},
	})
	server.Put("weftconfigs.contivpp.io", &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec:       v1.WeftConfigSpec{Addresses: v1.AddressesSpec{Borrowing: true}},
	})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	file := kubeconfigOf(t, server)
	check := func() string {
		output, err := l.Weftctl(t.Context(), "addresses", "check", "--kubeconfig", file, "--node", node.Name)
		if err != nil {
			output += err.Error()
		}
		return output
	}
	var b v1.IPBlock
	block := func() *v1.IPBlock {
		b = v1.IPBlock{}
		for _, name := range []string{"10.9.0.0-26", "10.9.0.64-26", "10.9.0.128-26", "10.9.0.192-26"} {
			if server.Object("ipblocks.contivpp.io", "", name, &b) {
				break
			}
		}
		return &b
	}
	l.eventually("addresses are offered", func() bool { return len(block().Spec.Offered) > 0 })
	a := l.pod("a")
	l.put(server, a, map[string]string{"contivpp.io/custom-if": "b1/tap/blue"})
	l.cni("ADD", a, nil)
	l.eventually("the block's status counts the pod", func() bool { return block().Status.Used == 2 })
	// In use are the node's own address and the pod's two; the custom network has one block.
	want := "2 pools, 2 blocks, 3 addresses in use, 1 node checked\n"
	l.eventually("the check counts the block of the network", func() bool { return strings.HasPrefix(check(), want) })
	if said := check(); !strings.HasSuffix(said, " leases of node n1 checked\nno problems\n") {
		t.Errorf("the check says %s", said)
	}
	l.cni("DEL", a, nil)
}
