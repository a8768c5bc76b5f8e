package ipnet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// knownTo returns the neighbours of a loopback, by address.
func (n *node) knownTo(loopback string) string {
	var lines []string
	for key, value := range n.committer.Values() {
		if v, ok := value.(wire.Neighbour); ok && strings.HasPrefix(key, wire.NeighbourKey(loopback, v.Address)) {
			lines = append(lines, fmt.Sprint(v.Address, " ", v.MAC))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

func TestGatewayOfABridgeKnowsOnlyItsPods(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("red", pod.L2, "10.5.0.0/24", "fd00:5::/64"), custom("bare", pod.L2))
	options := `{"x":{"mac":"02:00:00:00:00:07","ips":["10.5.0.9","fd00:5::9"]}}`
	older := asking("a", "x/tap/red", options)
	newer := asking("a", "x/tap/red", options)
	other := asking("b", "x/veth/bare", "")
	newer.Key.ContainerID = "newer"
	newer.Netns.Path = "/run/netns/newer"
	newer.Netns.Inode = 7
	newer.Annotations = map[string]string{
		pod.AnnotationCustom:  "x/tap/red",
		pod.AnnotationOptions: strings.ReplaceAll(options, ":07", ":08"),
	}
	known := func(mac string) string {
		return fmt.Sprintf(
			"10.5.0.9 02:00:00:00:00:%s, fd00:5::9 02:00:00:00:00:%s, fe80::ff:fe00:%s 02:00:00:00:00:%s", mac, mac,
			strings.TrimPrefix(mac, "0"), mac)
	}
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"a pod", func() { n.add(t, older) }, known("07")},
		{"a pod of a bridge without a gateway", func() { n.add(t, other) }, known("07")},
		{"the pod's newer sandbox has its addresses", func() { n.add(t, newer) }, known("08")},
		{"a restart", func() { n = n.restarted(t) }, known("08")},
		{"the older sandbox is gone", func() { n.delete(t, older) }, known("08")},
		{"the newer sandbox is gone", func() { n.delete(t, newer) }, ""},
	}
	for _, s := range steps {
		s.do()
		if got := n.knownTo("weft-gw-red"); got != s.want {
			t.Errorf("%s: neighbours of the gateway: %q, want %q", s.name, got, s.want)
		}
	}
}

func TestInterfaceForwardsOnlyAfterItsSourceFilterIsApplied(t *testing.T) {
	n := newNode(t, four, six).run(t)
	for _, name := range []string{"open", "closed"} {
		l3 := custom(name+"3", pod.L3, "10.5.0.0/24", "fd00:5::/64")
		l2 := custom(name+"2", pod.L2, "10.6.0.0/24")
		l3.AntiSpoof = name == "closed"
		l2.AntiSpoof = name == "closed"
		n.set(t, append(networksOf(n), l3, l2)...)
	}
	a := n.add(t, asking("a", "a/tap/open2, b/veth/closed3, d/tap/stub", ""))
	b := n.add(t, asking("bb", "a/tap/closed2, b/veth", ""))
	for _, i := range append(a.Interfaces, b.Interfaces...) {
		_, want := n.committer.Values()[wire.MACIPKey(i.Object)]
		for key, value := range n.committer.Values() {
			var judged, lets bool
			switch v := value.(type) {
			case wire.InterfaceVRF:
				judged = v.AntiSpoofed
				lets = v.Interface == i.Object
			case wire.BridgeMember:
				judged = v.AntiSpoofed
				lets = v.Interface == i.Object
			}
			if lets && judged != want {
				t.Errorf("%s: filtered %t, and its interface %t", key, judged, want)
			}
		}
	}
}

func networksOf(n *node) []pod.Network {
	var networks []pod.Network
	for _, s := range n.Networks.Saved() {
		networks = append(networks, s.Network)
	}
	return networks
}

func TestOnlyPodsOfLayer2NetworksWithCIDRsHaveTheGuardACL(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.set(t,
		append(networksOf(n), custom("addressed", pod.L2, "10.6.0.0/24"), custom("bare", pod.L2),
			custom("routed", pod.L3, "10.5.0.0/24"))...)
	a := n.add(t, asking("a", "a/tap/addressed, b/tap/bare, c/tap/routed, d/tap/stub, e/veth/addressed", ""))
	guarded := map[string]bool{}
	for _, i := range a.Interfaces {
		guarded[i.Object] = i.Network == "addressed"
	}
	count := 0
	for key, value := range n.committer.Values() {
		switch v := value.(type) {
		case wire.InterfaceACL:
			count++
			if !guarded[v.Interface] {
				t.Errorf("%s has the guard ACL", key)
			}
			if _, planned := n.committer.Values()[wire.ACLKey(v.Input[0])]; !planned {
				t.Errorf("%s has no %s", key, v.Input)
			}
		case wire.BridgeMember:
			if v.Filtered != guarded[v.Interface] {
				t.Errorf("%s: filtered %t", key, v.Filtered)
			}
		}
	}
	if count != 2 {
		t.Errorf("%d interfaces have the guard ACL, want 2", count)
	}
}
