package ipnet_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// delegate returns an ADD that another plugin delegates, of an interface with that name, type and network.
func delegate(name, ifName, kind, network string) *pod.AddPod {
	ev := sandbox(name)
	ev.Mode, ev.Key.IfName, ev.Key.Network = pod.ModeDelegate, ifName, "nad-"+ifName
	ev.Requested.Type, ev.Requested.Network = kind, network
	if kind == pod.TypeMemif {
		ev.Grants = []pod.Grant{grant("vnf", 1, 2), grant("side", 2, 1)}
	}
	return ev
}

func TestDelegateFollowsItsConfiguration(t *testing.T) {
	for _, tt := range []struct{ kind, network, want string }{
		{"", "", "tap  [10.1.0.2/32] [10.1.0.1] [{10.1.0.1/32 invalid IP} {10.1.0.0/28 10.1.0.1}]"},
		{"veth", "", "veth  [10.1.0.2/32] [10.1.0.1] [{10.1.0.1/32 invalid IP} {10.1.0.0/28 10.1.0.1}]"},
		{"", "bridge", "tap bridge [10.5.0.2/24] [10.5.0.1] []"},
		{"veth", "routed", "veth routed [10.6.0.2/32] [10.6.0.1] [{10.6.0.1/32 invalid IP} {10.6.0.0/24 10.6.0.1}]"},
		{"tap", "stub", "tap stub [] [] []"},
		{"memif", "bridge", "memif bridge [10.5.0.2/24] [10.5.0.1] []"},
	} {
		t.Run(tt.kind+" on "+tt.network, func(t *testing.T) {
			n := newNode(t, four).run(t)
			n.set(t, custom("bridge", pod.L2, "10.5.0.0/24"), custom("routed", pod.L3, "10.6.0.0/24"))
			ev := delegate("a", "net1", tt.kind, tt.network)
			i := n.add(t, ev).Interfaces[0]
			if got := fmt.Sprint(i.Type, " ", i.Network, " ", i.Addresses, i.Gateways, i.Routes); i.Name != "net1" || strings.ReplaceAll(got, "][", "] [") != tt.want {
				t.Errorf("got %s: %s, want %s", i.Name, got, tt.want)
			}
			n = n.restarted(t)
			n.delete(t, ev)
		})
	}
}

func TestDelegatesConfigurationIsValidated(t *testing.T) {
	n := newNode(t, four).run(t)
	closed := custom("shop", pod.L2, "10.5.0.0/24")
	closed.Namespaces = []string{"shop"}
	n.set(t, closed, custom("open", pod.L2, "10.6.0.0/24"))
	checkRefusal(t, n.refuses(t, delegate("a", "net1", "", "blue")), pod.CodeUnknownNetwork, `interface net1: there is no network "blue"`)
	checkRefusal(t, n.refuses(t, delegate("a", "net1", "", "shop")), pod.CodeUnknownNetwork, `network shop does not admit pods of namespace "default"`)
	asked := delegate("a", "net1", "", "open")
	asked.Requested.Options = pod.InterfaceOptions{MTU: 1400, AddressRequest: pod.AddressRequest{MAC: "02:00:00:00:00:07", IPs: prefixes("10.6.0.9")}}
	asked.Requested.MAC = "02:00:00:00:00:08"
	if i := n.add(t, asked).Interfaces[0]; i.MAC != "02:00:00:00:00:08" || i.MTU != 1400 || i.Addresses[0].String() != "10.6.0.9/24" {
		t.Errorf("the interface is %+v", i)
	}
}

// memifs returns the sandbox's memifs in the list of the container's program.
func (n *node) memifs(t *testing.T, container string) string {
	t.Helper()
	f, there := n.committer.Values()[wire.FileKey("/run/weft/memif/allocation-of-"+container+"/interfaces.json")].(wire.File)
	if !there {
		return "no list"
	}
	var list struct {
		Interfaces []struct {
			Name string
			ID   int
		}
	}
	if err := json.Unmarshal([]byte(f.Content), &list); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(list.Interfaces)
}

// Multus makes an ADD for each network, and kubelet makes one allocation for a container: the attachments share it.
func TestAttachmentsOfASandboxShareTheSocketsOfItsContainers(t *testing.T) {
	n := newNode(t, four).run(t)
	main := asking("a", "m0/memif", "")
	main.Grants = []pod.Grant{grant("vnf", 1, 2), grant("side", 2, 1)}
	one, two := delegate("a", "net1", "memif", ""), delegate("a", "net2", "memif", "stub")
	one.Requested.DeviceID, two.Requested.DeviceID = "memif-200", "memif-101"
	for _, step := range []struct {
		do        func()
		vnf, side string
	}{
		{func() { n.add(t, main) }, "[{m0 1}]", "no list"},
		{func() { n.add(t, one) }, "[{m0 1}]", "[{net1 1}]"},
		{func() { n.add(t, two) }, "[{m0 1} {net2 2}]", "[{net1 1}]"},
		{func() { n = n.restarted(t) }, "[{m0 1} {net2 2}]", "[{net1 1}]"},
		{func() {
			third := delegate("a", "net3", "memif", "")
			checkRefusal(t, n.refuses(t, third), pod.CodeDeviceMissing, "interface net3: the pod's containers have 3 of contivpp.io/memif")
		}, "[{m0 1} {net2 2}]", "[{net1 1}]"},
		{func() { n.delete(t, main) }, "[{net2 2}]", "[{net1 1}]"},
		{func() { n.add(t, main) }, "[{net2 2} {m0 3}]", "[{net1 1}]"},
		{func() { n.delete(t, two) }, "[{m0 3}]", "[{net1 1}]"},
		{func() { n.delete(t, one) }, "[{m0 3}]", "no list"},
		{func() { n.delete(t, main) }, "no list", "no list"},
	} {
		step.do()
		if vnf, side := n.memifs(t, "vnf"), n.memifs(t, "side"); vnf != step.vnf || side != step.side {
			t.Errorf("list of vnf %s and of side %s, want %s and %s", vnf, side, step.vnf, step.side)
		}
	}
}

func TestPodGetsTheDeviceThatItsConfigurationNames(t *testing.T) {
	n := newNode(t, four).run(t)
	foreign := delegate("a", "net1", "memif", "")
	foreign.Requested.DeviceID = "memif-77"
	checkRefusal(t, n.refuses(t, foreign), pod.CodeDeviceMissing, `deviceID "memif-77" is of no container of the pod; these have a contivpp.io/memif: vnf, side`)
	elsewhere := delegate("a", "net1", "memif", "")
	elsewhere.Requested.DeviceID, elsewhere.Requested.Options.Memif.Container = "memif-200", "vnf"
	checkRefusal(t, n.refuses(t, elsewhere), pod.CodeInvalidConfig, `deviceID "memif-200" is container side's, and the option container says vnf`)
	owner := delegate("a", "net1", "memif", "")
	n.add(t, owner)
	other, gid := delegate("a", "net2", "memif", ""), pod.ID32(7)
	other.Requested.Options.Memif.GID = &gid
	checkRefusal(t, n.refuses(t, other), pod.CodeInvalidAnnotation, "interfaces net1 and net2 of container vnf share a socket")
}

func TestDelegateOfACustomNetworkIsReconstructedUnchanged(t *testing.T) {
	blue := custom("blue", pod.L3, "10.6.0.0/24")
	n := newNode(t, four).run(t)
	n.set(t, blue)
	want := n.add(t, delegate("a", "net1", "", "blue"))
	fresh := newNode(t, four).run(t)
	fresh.set(t, blue)
	found := foundOf(t, n, want)
	found.Labels = []string{"weft:blue"}
	attachments, refused := fresh.Pods.Reconstruct([]attach.Found{found}, nil)
	if len(refused) > 0 || len(attachments) != 1 || !reflect.DeepEqual(attachments[0].Interfaces, want.Interfaces) {
		t.Errorf("got %+v, refused %v, want %+v", attachments, refused, want)
	}
}

func TestSelectedInterfaceNamesItsDefinition(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("blue", pod.L2, "10.5.0.0/24"))
	ev := asking("a", "t1/tap/blue", "")
	ev.Selected = []pod.InterfaceRequest{{Name: "net1", Type: "", Network: "blue", Definition: "infra/nad"}}
	a := n.add(t, ev)
	if got := a.Interfaces[2]; len(a.Interfaces) != 3 || got.Name != "net1" || got.Definition != "infra/nad" || got.Type != pod.TypeTap || got.Network != "blue" {
		t.Errorf("interfaces %+v", a.Interfaces)
	}
}
