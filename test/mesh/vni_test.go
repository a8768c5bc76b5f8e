package mesh

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/client"
	"github.com/weftnet/weft/k8s/controller"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
)

const customNetworks = "customnetworks.contivpp.io"

// The test covers a bug: the VNI of a network that was deleted while a pod used it was assigned to another network.
func TestPodsOfADeletedNetworkReachNoOtherNetwork(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	n1 := c.nodes[0]
	n2 := c.nodes[1]
	c.network("shop-a")
	a1 := n1.extraPod("a1", "shop-a")

	c.server.Remove(customNetworks, "", "shop-a")
	k8stest.Eventually(t, "the status names the user of shop-a", func() bool {
		ready := meta.FindStatusCondition(c.get("shop-a").Status.Conditions, v1.ConditionReady)
		return ready != nil && strings.Contains(ready.Message, "it is used by demo/a1 on n1")
	})
	runtime, err := n1.Runtime(t.Output())
	must.Succeed(t, err)
	late, err := n1.NewPod("late")
	must.Succeed(t, err)
	late.Annotations = map[string]string{"contivpp.io/custom-if": "x1/tap/shop-a"}
	if _, err := runtime.Add(t.Context(), late); err == nil ||
		!strings.Contains(err.Error(), "network shop-a is being deleted; no pod can be added to it") {
		t.Errorf("another pod of shop-a: %v", err)
	}

	c.network("other")
	c.network("shop-b") // with the addresses of shop-a
	b1 := n1.extraPod("b1", "shop-b")
	b2 := n2.extraPod("b2", "shop-b")
	victim := listen(t, b2.Netns)
	to := netip.AddrPortFrom(b2.address, port(victim))
	foreign := listen(t, a1.Netns)
	own := listen(t, b1.Netns)
	raw := make([]byte, 100)
	got := 0
	for deadline := time.Now().Add(30 * time.Second); got < 5; { // n1 learns of the block after some time
		write(t, foreign, to, "from shop-a")
		write(t, own, to, "from shop-b")
		must.Succeed(t, victim.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		switch n, err := victim.Read(raw); {
		case err == nil && string(raw[:n]) == "from shop-b":
			got++
		case err == nil:
			t.Fatalf("shop-b receives %q", raw[:n])
		case !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(deadline):
			t.Fatalf("pods of shop-b do not reach each other: %v", err)
		}
	}

	a1.remove()
	k8stest.Eventually(t, "shop-a is gone", func() bool { return c.get("shop-a").Name == "" })
}

// control runs the cluster's controller until the test ends, with changes of its configuration.
func (c *cluster) control(changes ...func(*controller.Config)) {
	c.t.Helper()
	client, err := client.New(c.server.Connection())
	must.Succeed(c.t, err)
	config := controller.Config{
		Client: client, Namespace: "weft-system", Identity: "it", Log: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	}
	for _, change := range changes {
		change(&config)
	}
	it, err := controller.New(config)
	must.Succeed(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- it.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Error(err)
		}
	})
}

// network makes a network on all nodes.
func (c *cluster) network(name string) {
	c.t.Helper()
	c.server.Put(customNetworks, &v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.Now()},
		Spec:       v1.CustomNetworkSpec{Type: v1.L3, CIDRs: []v1.CIDR{"10.60.0.0/24"}, BlockSize: 26},
	})
	k8stest.Eventually(c.t, name+" is ready", func() bool {
		n := c.get(name)
		return n.Status.ReadyNodes == 2 && meta.IsStatusConditionTrue(n.Status.Conditions, v1.ConditionReady)
	})
}

func (c *cluster) get(name string) (n v1.CustomNetwork) {
	c.server.Object(customNetworks, "", name, &n)
	return n
}

// extraPod is a pod with an interface x1 in a network.
type extraPod struct {
	*node.Pod
	address netip.Addr // of x1
	remove  func()     // may be called more than once
}

func (m *machine) extraPod(name, network string) *extraPod {
	m.t.Helper()
	runtime, err := m.Runtime(m.t.Output())
	must.Succeed(m.t, err)
	p, err := m.NewPod(name)
	must.Succeed(m.t, err)
	p.Annotations = map[string]string{"contivpp.io/custom-if": "x1/tap/" + network}
	result, err := runtime.Add(m.t.Context(), p)
	must.Succeed(m.t, err)
	remove := func() { must.Succeed(m.t, runtime.Del(context.Background(), p)) }
	m.t.Cleanup(remove)
	links, err := node.Links(result)
	must.Succeed(m.t, err)
	return &extraPod{Pod: p, address: links[1].Bare()[0], remove: remove}
}
