package mesh

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weftnet/weft/internal/netnstest"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/ping"
)

// A network permits addresses to the pods with a label. A running pod has them as long as it has the label, for a
// client on the other node.
func TestPermissionsFollowLabels(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	c.spread("site", v1.CustomNetworkSpec{
		Type:  v1.L2,
		CIDRs: []v1.CIDR{"10.5.0.0/24", "fd05::/64"},
		Permissions: []v1.Permission{{
			PodSelector:      metav1.LabelSelector{MatchLabels: map[string]string{"app": "router"}},
			AllowedAddresses: []v1.AddressOrPrefix{"10.5.0.100", "fd05::100"},
		}},
	})
	router, label := c.labelled(c.nodes[0], "router", "router")
	client := c.nodes[1].onSite("client", "")
	addresses := []netip.Addr{netip.MustParseAddr("10.5.0.100"), netip.MustParseAddr("fd05::100")}
	has(t, router, addresses)
	answer := func(when string, wanted bool) {
		t.Helper()
		for _, a := range addresses {
			p, err := ping.Open(client.Netns, a)
			must.Succeed(t, err)
			k8stest.Eventually(t, when+": "+a.String(), func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := p.Once(ctx, a, 1)
				return (err == nil) == wanted
			})
			must.Succeed(t, p.Close())
		}
	}
	answer("with the label", true)
	label("other")
	answer("without the label", false)
	label("router")
	answer("with the label again", true)
}

// labelled adds a pod with the label app and with an interface t1 on the network site. The returned function changes
// the label.
func (c *cluster) labelled(m *machine, name, app string) (p *node.Pod, label func(app string)) {
	c.t.Helper()
	p, err := m.NewPod(name)
	must.Succeed(c.t, err)
	p.UID = "uid-of-" + name
	p.Annotations = map[string]string{"contivpp.io/custom-if": "t1/tap/site"}
	label = func(app string) {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "demo", Name: name, UID: types.UID(p.UID), Annotations: p.Annotations,
			Labels: map[string]string{"app": app},
		}}
		object.Spec.NodeName = m.name
		c.server.Put("pods", object)
	}
	label(app)
	runtime, err := m.Runtime(c.t.Output())
	must.Succeed(c.t, err)
	_, err = runtime.Add(c.t.Context(), p)
	must.Succeed(c.t, err)
	c.t.Cleanup(func() { must.Succeed(c.t, runtime.Del(context.Background(), p)) })
	return p, label
}

// has gives the link t1 of a pod further addresses.
func has(t *testing.T, p *node.Pod, addresses []netip.Addr) {
	t.Helper()
	netnstest.Do(t, p.Netns, func() {
		link, err := netlink.LinkByName("t1")
		must.Succeed(t, err)
		for _, a := range addresses {
			text := a.String() + "/32"
			if a.Is6() {
				text = a.String() + "/128"
			}
			address, err := netlink.ParseAddr(text)
			must.Succeed(t, err)
			must.Succeed(t, netlink.AddrAdd(link, address))
		}
	})
}
