package ipnet_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// delegate returns an ADD that another plugin delegates, of an interface with that name, type and network.
func delegate(name, ifName, kind, network string) *pod.AddPod {
	ev := sandbox(name)
	ev.Mode = pod.ModeDelegate
	ev.Key.IfName = ifName
	ev.Key.Network = "nad-" + ifName
	ev.Requested.Type = kind
	ev.Requested.Network = network
	if kind == pod.TypeMemif {
		ev.Grants = []pod.Grant{grant("vnf", 1, 2), grant("side", 2, 1)}
	}
	return ev
}

func TestDelegateFollowsItsConfiguration(t *testing.T) {
	for _, tt := range []struct{ kind, network, want string }{
		{"", "", "tap  [10.1.0.2/32] [10.1.0.1] [10.1.0.1/32 10.1.0.0/28 via 10.1.0.1]"},
		{"veth", "", "veth  [10.1.0.2/32] [10.1.0.1] [10.1.0.1/32 10.1.0.0/28 via 10.1.0.1]"},
		{"", "bridge", "tap bridge [10.5.0.2/24] [10.5.0.1] []"},
		{"veth", "routed", "veth routed [10.6.0.2/32] [10.6.0.1] [10.6.0.1/32 10.6.0.0/24 via 10.6.0.1]"},
		{"tap", "stub", "tap stub [] [] []"},
		{"memif", "bridge", "memif bridge [10.5.0.2/24] [10.5.0.1] []"},
	} {
		t.Run(tt.kind+" on "+tt.network, func(t *testing.T) {
			n := newNode(t, four).run(t)
			n.set(t, custom("bridge", pod.L2, "10.5.0.0/24"), custom("routed", pod.L3, "10.6.0.0/24"))
			ev := delegate("a", "net1", tt.kind, tt.network)
			i := n.add(t, ev).Interfaces[0]
			if got := fmt.Sprint(i.Type, " ", i.Network, " ", i.Addresses, i.Gateways, i.Routes); i.Name != "net1" ||
				strings.ReplaceAll(got, "][", "] [") != tt.want {
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
	checkRefusal(t, n.refuses(t, delegate("a", "net1", "", "blue")), pod.CodeUnknownNetwork,
		`interface net1: unknown network "blue"`)
	checkRefusal(t, n.refuses(t, delegate("a", "net1", "", "shop")), pod.CodeUnknownNetwork,
		`network shop does not admit pods of namespace "default"`)
	asked := delegate("a", "net1", "", "open")
	asked.Requested.Options = pod.InterfaceOptions{
		MTU:            1400,
		AddressRequest: pod.AddressRequest{MAC: netaddr.MAC{2, 0, 0, 0, 0, 7}, IPs: prefixes("10.6.0.9")},
	}
	asked.Requested.MAC = netaddr.MAC{2, 0, 0, 0, 0, 8}
	if i := n.add(t, asked).Interfaces[0]; i.MAC != asked.Requested.MAC || i.MTU != 1400 ||
		i.Addresses[0].String() != "10.6.0.9/24" {
		t.Errorf("the interface is %+v", i)
	}
}

// memifs returns the sandbox's memifs in the list of the container's program.
func (n *node) memifs(t *testing.T, container string) string {
	t.Helper()
	f, there := n.committer.Values()[wire.FileKey("/run/weft/memif/allocation-of-"+container+
		"/interfaces.json")].(wire.File)
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
	one := delegate("a", "net1", "memif", "")
	two := delegate("a", "net2", "memif", "stub")
	one.Requested.DeviceID = "memif-200"
	two.Requested.DeviceID = "memif-101"
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
			checkRefusal(t, n.refuses(t, third), pod.CodeDeviceMissing,
				"interface net3: the pod's containers have 3 of contivpp.io/memif")
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

// claimedFor adds a memif of a claim for delegates to the devices of a pod. Its id is "memif-" and 100 times the
// socket.
func claimedFor(ev *pod.AddPod, name string, socket uint32) {
	g := grant(name, socket, 1)
	g.Container = ""
	g.Allocation.Claim = &pod.ClaimedDevice{
		ClaimID:    pod.ClaimID{Namespace: "default", Name: name, UID: "u"},
		Device:     g.Allocation.Devices[0],
		Parameters: pod.ClaimParameters{Interface: name, Delegate: true},
	}
	ev.Grants = append([]pod.Grant{g}, ev.Grants...)
}

// Multus names the device of a claim by the attribute of its ResourceSlice, and its release 4.3.0 by the CDI device,
// whose name is the allocation's. The interface is that of the definition. Several definitions may have devices of
// several claims.
func TestDelegateGetsTheDeviceOfAClaimThatMultusNames(t *testing.T) {
	n := newNode(t, four).run(t)
	var got []string
	for i, device := range []string{"memif-900", "allocation-of-late", "u_"} {
		ev := delegate("a", fmt.Sprint("net", i+1), "memif", "")
		claimedFor(ev, "fast", 8)
		claimedFor(ev, "slow", 9)
		claimedFor(ev, "late", 7)
		ev.Requested.DeviceID = device
		for _, in := range n.add(t, ev).Interfaces {
			got = append(got, fmt.Sprintf("%s:%s:%d", in.Name, in.Memif.Allocation, in.Memif.ID))
		}
	}
	if want := "[net1:allocation-of-slow:1 net2:allocation-of-late:1 net3:allocation-of-fast:1]"; fmt.Sprint(
		got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	again := delegate("a", "net4", "memif", "")
	claimedFor(again, "spare", 6) // another claim's device is in other containers
	again.Grants[0].Allocation.Claim.UID = "of another claim"
	claimedFor(again, "fast", 8)
	again.Requested.DeviceID = "memif-800"
	checkRefusal(t, n.refuses(t, again), pod.CodeDeviceMissing,
		`interface net4: deviceID "memif-800" is another interface of the pod already`)
}

func TestDeviceOfAClaimForDelegatesIsForNoOtherInterface(t *testing.T) {
	n := newNode(t, four).run(t)
	unnamed := delegate("a", "net1", "memif", "")
	unnamed.Grants = nil
	claimedFor(unnamed, "fast", 8)
	checkRefusal(t, n.refuses(t, unnamed), pod.CodeDeviceMissing,
		"interface net1: the pod's containers have 0 of contivpp.io/memif")
	unnamed.Requested.DeviceID = "memif-800"
	unnamed.Requested.Options.Memif.Container = "vnf"
	checkRefusal(t, n.refuses(t, unnamed), pod.CodeInvalidConfig, "leave out the option container")
	named := delegate("b", "net1", "memif", "")
	claimedFor(named, "a-b", 8)
	claimedFor(named, "a.b", 9)
	named.Requested.DeviceID = "memif-800"
	checkRefusal(t, n.refuses(t, named), pod.CodeInvalidAnnotation,
		"interfaces a.b and a-b of claims have the same variable MEMIF_SOCKET_A_B")
}

// Multus does not know that a claim makes an interface of its own of a device: it may name that one for a definition.
// Another device of the pod takes its place; without one the error says how the claim lets Multus have its device.
func TestMultusMayNameTheDeviceOfAClaimsOwnInterface(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := delegate("a", "net1", "memif", "")
	claimed(ev, "fast", 8, pod.InterfaceOptions{})
	ev.Grants[0].Allocation.Claim.Parameters.Interface = "fast"
	ev.Requested.DeviceID = "memif-800"
	var got []string
	for _, in := range n.add(t, ev).Interfaces {
		got = append(got, in.Name+":"+in.Memif.Allocation)
	}
	if want := "[net1:allocation-of-vnf fast:allocation-of-fast]"; fmt.Sprint(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	alone := delegate("b", "net1", "memif", "")
	alone.Grants = nil
	claimed(alone, "fast", 7, pod.InterfaceOptions{})
	alone.Grants[0].Allocation.Claim.Parameters.Interface = "fast"
	alone.Requested.DeviceID = "memif-700"
	checkRefusal(t, n.refuses(t, alone), pod.CodeDeviceMissing,
		`deviceID "memif-700" is interface fast of claim default/c: set delegate: true in the claim's parameters`)
}

func TestPodGetsTheDeviceThatItsConfigurationNames(t *testing.T) {
	n := newNode(t, four).run(t)
	foreign := delegate("a", "net1", "memif", "")
	foreign.Requested.DeviceID = "memif-77"
	checkRefusal(t, n.refuses(t, foreign), pod.CodeDeviceMissing,
		`deviceID "memif-77" is of no container of the pod; these have a contivpp.io/memif: vnf, side`)
	elsewhere := delegate("a", "net1", "memif", "")
	elsewhere.Requested.DeviceID = "memif-200"
	elsewhere.Requested.Options.Memif.Container = "vnf"
	checkRefusal(t, n.refuses(t, elsewhere), pod.CodeInvalidConfig,
		`deviceID "memif-200" is container side's, and the option container says vnf`)
	owner := delegate("a", "net1", "memif", "")
	n.add(t, owner)
	other := delegate("a", "net2", "memif", "")
	gid := pod.ID32(7)
	other.Requested.Options.Memif.GID = &gid
	checkRefusal(t, n.refuses(t, other), pod.CodeInvalidAnnotation,
		"interfaces net1 and net2 of container vnf share a socket")
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
	if got := a.Interfaces[2]; len(a.Interfaces) != 3 || got.Name != "net1" || got.Definition != "infra/nad" ||
		got.Type != pod.TypeTap || got.Network != "blue" {
		t.Errorf("interfaces %+v", a.Interfaces)
	}
}
