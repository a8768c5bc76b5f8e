package agent

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/must"
	"github.com/weftnet/weft/test/node"
	"github.com/weftnet/weft/test/programs"
)

// A pod with a fixed address is recreated. A neighbour that knows the address learns the new MAC without sending
// anything: with the former MAC it would not reach the pod until the entry is probed, which took up to 49 s.
func TestNeighboursLearnTheMACOfARecreatedPod(t *testing.T) {
	for _, kind := range []string{"tap", "veth"} {
		t.Run(kind, func(t *testing.T) {
			l := newLabWith(t, programs.Build(t), node.Options{Embedded: true})
			cidrs := []netip.Prefix{netip.MustParsePrefix("10.5.0.0/24"), netip.MustParsePrefix("fd00:5::/64")}
			must.Succeed(t, l.SetNetworks([]node.Network{{Name: "blue", Type: "L2", CIDRs: cidrs}}))
			must.Succeed(t, errors.Join(l.StopAgent(), l.StartAgent(t.Context())))
			neighbour := l.pod("neighbour")
			first := l.pod("recreated")
			fixed := []netip.Addr{netip.MustParseAddr("10.5.0.7"), netip.MustParseAddr("fd00:5::7")}
			addresses := `{"t1":{"ips":["10.5.0.7","fd00:5::7"]}}`
			l.cni("ADD", neighbour, annotated(map[string]string{customInterfaces: "t1/" + kind + "/blue"}))
			l.cni("ADD", first,
				annotated(map[string]string{customInterfaces: "t1/" + kind + "/blue", customOptions: addresses}))
			for _, a := range fixed {
				l.mustReach(neighbour, a)
				l.knows(neighbour, a, first)
			}
			l.cni("DEL", first, nil)
			second, err := l.NewSandbox(first, "recreated-again")
			must.Succeed(t, err)
			l.cni("ADD", second,
				annotated(map[string]string{customInterfaces: "t1/" + kind + "/blue", customOptions: addresses}))
			for _, a := range fixed {
				l.knows(neighbour, a, second)
			}
		})
	}
}

// annotated is the part of a network configuration with the annotations of the pod.
func annotated(annotations map[string]string) map[string]any {
	return map[string]any{"runtimeConfig": map[string]any{"io.kubernetes.cri.pod-annotations": annotations}}
}

// knows waits until the link t1 of a pod has an entry for an address with the MAC of the other pod's t1.
func (l *lab) knows(p *node.Pod, address netip.Addr, other *node.Pod) {
	l.Helper()
	var want net.HardwareAddr
	netnstest.Do(l, other.Netns, func() { want = mustLink(l.T, "t1").Attrs().HardwareAddr })
	l.await(func() (known bool) {
		netnstest.Do(l, p.Netns, func() {
			entries, err := netlink.NeighList(mustLink(l.T, "t1").Attrs().Index, netlink.FAMILY_ALL)
			must.Succeed(l.T, err)
			for _, n := range entries {
				known = known || n.IP.Equal(address.AsSlice()) && n.HardwareAddr.String() == want.String()
			}
		})
		return known
	}, p.Name+" knows the MAC "+want.String()+" of "+address.String())
}
