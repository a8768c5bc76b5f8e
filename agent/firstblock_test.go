package agent

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/node"
)

// failedEvents returns the failed events of the running agent.
func (l *lab) failedEvents() string {
	l.Helper()
	output, err := l.Weftctl(l.Context(), "events", "--failed")
	if err != nil {
		l.Fatal(err)
	}
	return output
}

func TestFirstPodOfANetworkSucceedsWithoutAFailedEvent(t *testing.T) {
	server := k8stest.New(t)
	server.Put("ippools.contivpp.io", &v1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: v1.IPPoolSpec{CIDR: "10.9.0.0/24"}})
	l := clusterLabWith(t, server, node.Options{ClusterPools: true})
	a := l.pod("a")
	l.put(server, a, map[string]string{customInterfaces: "b1/tap/blue"})
	output, failed := l.tries("ADD", a)
	if failed {
		t.Errorf("ADD failed: %s", output)
	}
	if events := l.failedEvents(); strings.Contains(events, "add pod") {
		t.Errorf("failed events:\n%s", events)
	}
	l.cni("DEL", a, nil)
}
