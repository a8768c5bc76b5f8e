package mesh

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/k8stest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
)

const claimResource = "ipamclaims.k8s.cni.cncf.io"

// The next pod with a claim has the addresses and the MAC of the former one, on the same node and on the other one.
// While it is away no other pod gets them, also after the agents restarted; without the claim they are free.
func TestAnIPAMClaimHoldsItsAddressesAcrossPodsAndNodes(t *testing.T) {
	c := newCluster(t, options{tunnel: "vxlan4"})
	c.control()
	c.meet()
	c.spread("lan", v1.CustomNetworkSpec{Type: v1.L2, CIDRs: []v1.CIDR{"10.5.0.0/24", "fd05::/120"}})
	claim := &npwg.IPAMClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "db-0.t1", UID: "one"},
		Spec:       npwg.IPAMClaimSpec{Network: "lan", Interface: "t1"},
	}
	c.server.Put(claimResource, claim)
	n1 := c.nodes[0]
	n2 := c.nodes[1]
	const request = `{"ipamClaim": "db-0.t1"}`

	first, remove := n1.removable("lan", "first", request)
	want := t1Of(t, first)
	var stored npwg.IPAMClaim
	c.server.Object(claimResource, "demo", "db-0.t1", &stored)
	if got := strings.Join(stored.Status.IPs, " "); len(stored.Status.IPs) != 2 || !strings.HasPrefix(want.addresses, got) {
		t.Fatalf("the claim holds %q, the pod has %q", got, want.addresses)
	}
	// The refusal names the pod, too, once n1 has published it.
	_, err := n2.tryOn("lan", "twin", request)
	if err == nil || !strings.Contains(err.Error(), " is held by ") || !strings.Contains(err.Error(), "node n1;") {
		t.Errorf("two pods have one claim: %v", err)
	}
	remove()

	second, remove := n1.removable("lan", "second", request)
	if got := t1Of(t, second); got != want {
		t.Errorf("the next pod has %+v, want %+v", got, want)
	}
	remove()

	held := netip.MustParsePrefix(stored.Status.IPs[0]).Addr()
	thief := `{"ips": ["` + held.String() + `"]}`
	check := func(when string) {
		for _, m := range c.nodes {
			_, err := m.tryOn("lan", "thief-"+when, thief)
			if err == nil || !strings.Contains(err.Error(), "belongs to IPAMClaim demo/db-0.t1") {
				t.Errorf("%s: another pod of %s got the address: %v", when, m.name, err)
			}
		}
	}
	check("away")
	for _, m := range c.nodes {
		must.Succeed(t, m.StopAgent())
		m.restart(t)
		m.wantFirstResyncIdle(t)
	}
	check("restarted")

	third, remove := n2.removable("lan", "third", request)
	if got := t1Of(t, third); got != want {
		t.Errorf("the pod on the other node has %+v, want %+v", got, want)
	}
	remove()
	c.server.Remove(claimResource, "demo", "db-0.t1")
	tries := 0
	k8stest.Eventually(t, "the addresses are free", func() bool {
		tries++
		_, err := n2.tryOn("lan", fmt.Sprint("other-", tries), thief)
		return err == nil
	})
}

// tryOn adds a pod with an interface t1 on a network.
func (m *machine) tryOn(network, name, options string) (*node.Pod, error) {
	m.t.Helper()
	if options != "" {
		options = `{"t1": ` + options + `}`
	}
	return m.tryWith(name, "t1/tap/"+network, options)
}

// tryWith adds a pod with interfaces and their options.
func (m *machine) tryWith(name, interfaces, options string) (*node.Pod, error) {
	m.t.Helper()
	runtime, err := m.Runtime(m.t.Output())
	must.Succeed(m.t, err)
	p, err := m.NewPod(name)
	must.Succeed(m.t, err)
	p.Annotations = map[string]string{"contivpp.io/custom-if": interfaces}
	if options != "" {
		p.Annotations["contivpp.io/custom-if-options"] = options
	}
	_, err = runtime.Add(m.t.Context(), p)
	m.t.Cleanup(func() { must.Succeed(m.t, runtime.Del(context.Background(), p)) })
	return p, err
}

// removable is on with a function that deletes the pod.
func (m *machine) removable(network, name, options string) (p *node.Pod, remove func()) {
	m.t.Helper()
	p = m.on(network, name, options)
	runtime, err := m.Runtime(m.t.Output())
	must.Succeed(m.t, err)
	return p, func() { must.Succeed(m.t, runtime.Del(m.t.Context(), p)) }
}

// identity is by what neighbours know a link.
type identity struct{ mac, addresses string }

// t1Of returns the MAC and the global addresses of the link t1 of a pod, IPv4 first.
func t1Of(t *testing.T, p *node.Pod) (i identity) {
	t.Helper()
	i.mac = macOf(t, p)
	netnstest.Do(t, p.Netns, func() {
		list, err := netlink.AddrList(linkOf(t, "t1"), netlink.FAMILY_ALL)
		must.Succeed(t, err)
		var texts []string
		for _, a := range list {
			if !a.IP.IsLinkLocalUnicast() {
				texts = append(texts, a.IPNet.String())
			}
		}
		i.addresses = strings.Join(texts, " ")
	})
	return i
}
