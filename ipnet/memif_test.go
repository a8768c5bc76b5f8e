package ipnet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// places returns container and id of each memif.
func places(a *pod.Attachment) string {
	var list []string
	for _, i := range a.Interfaces {
		if i.Memif != nil {
			list = append(list, fmt.Sprintf("%s=%s/%d", i.Name, i.Memif.Container, i.Memif.ID))
		}
	}
	return strings.Join(list, " ")
}

func TestMemifsAreAssignedToContainersInOrder(t *testing.T) {
	tests := []struct {
		name, interfaces, options string
		devices                   []int // of containers a, b, c
		want                      string
	}{
		{"as far as the limits allow", "m1/memif,t1/tap,m2/memif,m3/memif", "", []int{2, 1}, "m1=a/1 m2=a/2 m3=b/1"},
		{"more devices than memifs", "m1/memif", "", []int{0, 3, 1}, "m1=b/1"},
		{
			"to the named container", "m1/memif,m2/memif,m3/memif", `{"m1":{"container":"b"}}`, []int{1, 2},
			"m1=b/1 m2=a/1 m3=b/2",
		},
		{
			"other memifs leave devices for a named one", "m1/memif,m2/memif", `{"m2":{"container":"a"}}`, []int{1, 1},
			"m1=b/1 m2=a/1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four).run(t)
			ev := asking("p", tt.interfaces, tt.options)
			ev.Grants = nil
			for c, devices := range tt.devices {
				ev.Grants = append(ev.Grants, grant(string(rune('a'+c)), uint32(c+1), devices))
			}
			if got := places(n.add(t, ev)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestInvalidMemifLeavesNothingAndHasAReason(t *testing.T) {
	two := []pod.Grant{grant("a", 1, 1), grant("b", 2, 1)}
	tests := []struct {
		name, interfaces, options string
		grants                    []pod.Grant
		code                      uint
		want                      string
	}{
		{"no resource", "m1/memif", "", nil, pod.CodeDeviceMissing,
			"interface m1: the pod's containers have 0 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 1; raise the limits"},
		{
			"too few devices", "m1/memif,m2/memif,m3/memif", "", two, pod.CodeDeviceMissing,
			"interface m3: the pod's containers have 2 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 3",
		},
		{
			"too few in one container", "m1/memif,m2/memif", `{"m1":{"container":"a"},"m2":{"container":"a"}}`, two,
			pod.CodeDeviceMissing,
			"interface m2: container a has 1 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 2",
		},
		{
			"an unknown container", "m1/memif", `{"m1":{"container":"z"}}`, two, pod.CodeDeviceMissing,
			"container z has no contivpp.io/memif in its limits; these have: a, b",
		},
		{
			"two owners of one socket", "m1/memif,m2/memif", `{"m1":{"gid":1}}`, []pod.Grant{grant("a", 1, 2)},
			pod.CodeInvalidAnnotation,
			"interfaces m1 and m2 of container a share a socket, so their uid and gid must be the same",
		},
		{
			"mode ip on a bridge", "m1/memif/bridge", `{"m1":{"mode":"ip"}}`, two, pod.CodeInvalidAnnotation,
			"mode ip has no MACs, which network bridge needs",
		},
		{
			"a ring above the cap", "m1/memif", `{"m1":{"ringSize":8192}}`, two, pod.CodeInvalidAnnotation,
			"ringSize 8192 is more than this node allows, which is 4096",
		},
		{
			"a ring that holds no packet of the network", "m1/memif", `{"m1":{"ringSize":2,"bufferSize":512}}`, two,
			pod.CodeInvalidAnnotation,
			"interface m1: ringSize 2 x bufferSize 512: the ring holds 1024 bytes, and a packet of MTU 1500 has 1514; set a larger ringSize or bufferSize, or a smaller mtu",
		},
		{
			"a ring that holds no packet of any network", "m1/memif", `{"m1":{"ringSize":2,"bufferSize":64}}`, two,
			pod.CodeInvalidAnnotation,
			"the ring holds 128 bytes, and a packet of MTU 576 has 590",
		},
		{
			"queues above the cap", "m1/memif", `{"m1":{"txQueues":5}}`, two, pod.CodeInvalidAnnotation,
			"txQueues 5 is more than this node allows, which is 4",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, four, six).run(t)
			n.set(t, custom("bridge", pod.L2))
			ev := asking("second", tt.interfaces, tt.options)
			ev.Grants = tt.grants
			checkRefusal(t, n.refuses(t, ev), tt.code, tt.want, "add pod default/second")
		})
	}
}

// claimed adds a memif of a claim to the request of a pod.
func claimed(ev *pod.AddPod, name string, socket uint32, options pod.InterfaceOptions) {
	g := grant(name, socket, 1)
	g.Container = ""
	g.Allocation.Claim = &pod.ClaimedDevice{
		ClaimID: pod.ClaimID{Namespace: "default", Name: "c", UID: "u"},
		Device:  g.Allocation.Devices[0],
	}
	ev.Grants = append([]pod.Grant{g}, ev.Grants...)
	ev.Claimed = append(ev.Claimed, pod.InterfaceRequest{
		Name:       name,
		Type:       pod.TypeMemif,
		Network:    "default",
		Options:    options,
		Claim:      "default/c",
		Allocation: g.Allocation.ID,
	})
}

// A pod has memifs by both ways: each claim's memif has the device of the claim, and the annotation's has that of the
// container.
func TestMemifsOfClaimsAndAnnotationHaveTheirOwnDevices(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := asking("a", "m1/memif", "")
	group := pod.ID32(7)
	claimed(ev, "fast", 8, pod.InterfaceOptions{Memif: pod.MemifOptions{GID: &group}})
	claimed(ev, "slow", 9, pod.InterfaceOptions{})
	var got []string
	for _, i := range n.add(t, ev).Interfaces[1:] {
		got = append(got, fmt.Sprintf("%s:%s:%d:%d", i.Name, i.Memif.Allocation, i.Memif.Socket, i.Memif.ID))
	}
	if want := "[m1:allocation-of-vnf:1:1 fast:allocation-of-fast:8:1 slow:allocation-of-slow:9:1]"; fmt.Sprint(
		got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMemifOfAnnotationGetsNoDeviceOfAClaim(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := asking("a", "m1/memif", "")
	ev.Grants = nil
	claimed(ev, "fast", 8, pod.InterfaceOptions{})
	checkRefusal(t, n.refuses(t, ev), pod.CodeDeviceMissing,
		"interface m1: the pod's containers have 0 of contivpp.io/memif and annotation contivpp.io/custom-if asks for 1")
}

func TestClaimAboveTheCapsIsRefusedByItsName(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := asking("a", "", "")
	claimed(ev, "fast", 8, pod.InterfaceOptions{Memif: pod.MemifOptions{RingSize: 8192}})
	checkRefusal(t, n.refuses(t, ev), pod.CodeInvalidAnnotation,
		"claim default/c: interface fast: ringSize 8192 is more than this node allows, which is 4096")
}

func TestErrorOfANodeWithoutMemifsNamesTheSetting(t *testing.T) {
	n := newNode(t, four)
	config := ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}}
	var err error
	if n.Network, err = ipnet.New(config); err != nil {
		t.Fatal(err)
	}
	n.run(t)
	checkRefusal(t, n.refuses(t, asking("a", "m1/memif", "")), pod.CodeDeviceMissing,
		"this node has no memifs: devices.memif.count")
}

func TestContainerOutsideOfKubernetesHasNoMemif(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := asking("a", "m1/memif", "")
	ev.ID = pod.ID{}
	ev.Grants = nil
	checkRefusal(t, n.refuses(t, ev), pod.CodeDeviceMissing, "needs a Kubernetes pod with the limit")
}

func TestMemifOptionsAreReversedForTheDataplane(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := asking("a",
		"m1/memif", `{"m1":{"ringSize":512,"bufferSize":4096,"rxQueues":2,"txQueues":3,"mode":"ip","uid":7,"gid":8}}`)
	a := n.add(t, ev)
	values := n.committer.Values()
	got := values[wire.InterfaceKey(a.Interfaces[1].Object)].(wire.Interface).Memif
	want := wire.Memif{
		Socket:     "allocation-of-vnf",
		ID:         1,
		Mode:       wire.MemifIP,
		Secret:     "secret of vnf",
		RingSize:   512,
		BufferSize: 4096,
		RxQueues:   3,
		TxQueues:   2,
	}
	if got != want || string(got.Secret) != string(want.Secret) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	directory := ev.Grants[0].Allocation.Directory
	socket := values[wire.FileKey(directory+"/memif.sock")].(wire.File)
	list := values[wire.FileKey(directory+"/interfaces.json")].(wire.File)
	if socket.Mode != 0o660 || socket.UID != 7 || socket.GID != 8 || list.Mode != 0o440 || list.UID != 7 ||
		list.GID != 8 {
		t.Errorf("socket %+v, list %+v", socket, list)
	}
	for key, v := range values {
		if _, isNeighbour := v.(wire.Neighbour); isNeighbour && strings.Contains(key, "-m1/") {
			t.Errorf("%s: mode ip has no MACs", key)
		}
	}
}

func TestPodWithAnUnknownGroupHasItsDirectoryAlone(t *testing.T) {
	n := newNode(t, four).run(t)
	ev := asking("a", "m1/memif", "")
	n.add(t, ev)
	values := n.committer.Values()
	directory := ev.Grants[0].Allocation.Directory
	for name, mode := range map[string]fs.FileMode{"/memif.sock": 0o666, "/interfaces.json": 0o444} {
		if f := values[wire.FileKey(directory+name)].(wire.File); f.Mode != mode || f.GID != 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestContainersListHasAllThatItsProgramNeeds(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.set(t, custom("blue", pod.L3, "10.5.0.0/24", "2001:db8:5::/64"), custom("red", pod.L2, "10.6.0.0/24"))
	ev := asking("a", "m1/memif/blue,m2/memif/red,m3/memif,m4/memif/stub", "")
	n.add(t, ev)
	golden(t, "interfaces-json",
		n.committer.Values()[wire.FileKey(ev.Grants[0].Allocation.Directory+"/interfaces.json")].(wire.File).Content)
}

// Neighbours on a network of type L2 know the MAC of an address for a while after its pod was recreated, and nothing
// announces that of a memif.
func TestARecreatedMemifWithTheSameAddressHasTheSameMAC(t *testing.T) {
	n := newNode(t, four, six).run(t)
	n.set(t, custom("blue", pod.L3, "10.5.0.0/24"), custom("red", pod.L2, "10.6.0.0/24"),
		custom("green", pod.L2, "10.6.0.0/24"))
	macs := func(name, interfaces, options string) map[string]string {
		ev := asking(name, interfaces, options)
		found := make(map[string]string)
		for _, i := range n.add(t, ev).Interfaces {
			found[i.Name] = i.MAC.String()
		}
		n.delete(t, ev)
		return found
	}
	at := func(ip string) string { return fmt.Sprintf(`{"m1":{"ips":[%q]},"m2":{"ips":["10.6.0.77"]}}`, ip) }
	first := macs("a", "m1/memif/red,m2/memif/green", at("10.6.0.9"))
	again := macs("b", "m1/memif/red,m2/memif/green", at("10.6.0.9"))
	if first["m1"] != again["m1"] || first["m2"] != again["m2"] || first["m1"] == first["m2"] {
		t.Errorf("MACs %v, then %v", first, again)
	}
	if other := macs("c", "m1/memif/red,m2/memif/green", at("10.6.0.10")); other["m1"] == first["m1"] {
		t.Errorf("two addresses have the MAC %s", other["m1"])
	}
	if elsewhere := macs("d", "m1/memif/green", `{"m1":{"ips":["10.6.0.9"]}}`); elsewhere["m1"] == first["m1"] {
		t.Errorf("two networks have the MAC %s", elsewhere["m1"])
	}
	const asked = "02:00:00:00:00:99"
	if chosen := macs("e", "m1/memif/red", `{"m1":{"mac":"`+asked+`","ips":["10.6.0.9"]}}`); chosen["m1"] != asked {
		t.Errorf("MAC %s was asked for, and it is %s", asked, chosen["m1"])
	}
	if routed := macs("f", "m1/memif/blue", `{"m1":{"ips":["10.5.0.9"]}}`); routed["m1"] == macs("g",
		"m1/memif/blue", `{"m1":{"ips":["10.5.0.9"]}}`)["m1"] {
		t.Error("a routed network has neighbours of its own: its MACs did not change before")
	}
}

func TestNewSandboxTakesOverTheSocketsOfTheOldOne(t *testing.T) {
	n := newNode(t, four).run(t)
	first := asking("p", "m1/memif,m2/memif", "")
	n.add(t, first)
	second := asking("p", "m1/memif,m2/memif", "")
	second.Key.ContainerID = "c0ffee-again"
	second.Netns = pod.Netns{Path: "/run/netns/again", Inode: 4026532999, Device: 4}
	a := n.add(t, second)
	count := func() (memifs int) {
		for _, v := range n.committer.Values() {
			if i, ok := v.(wire.Interface); ok && i.Type == wire.TypeMemif {
				memifs++
			}
		}
		return memifs
	}
	if count() != 2 {
		t.Fatalf("%d memifs on two ids of one socket", count())
	}
	n = n.restarted(t)
	n.delete(t, first)
	for _, key := range n.Pods.Objects(a) {
		if n.committer.Values()[key] == nil {
			t.Errorf("%s was deleted with the old sandbox", key)
		}
	}
	n.delete(t, second)
	if count() != 0 || n.committer.Values()[wire.MemifSocketKey("allocation-of-vnf")] != nil {
		t.Errorf("left: %s", list(t, n.committer.Values()))
	}
}

func TestNoSecretIsStored(t *testing.T) {
	n := newNode(t, four).run(t)
	rec, err := n.loop.Do(context.Background(), asking("a", "m1/memif", ""))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if all := string(text) + n.state(t) + fmt.Sprintf("%+v", n.committer.Values()); strings.Contains(all, "secret of") {
		t.Errorf("a secret is in %s", all)
	}
}

// A CHECK reads the objects of a pod in its own goroutine.
func TestObjectsOfAPodWithMemifsCanBeListedWhileOtherPodsChange(t *testing.T) {
	n := newNode(t, netaddr.Pool{Name: "large", Prefix: netip.MustParsePrefix("10.1.0.0/24")}).run(t)
	a := n.add(t, asking("a", "m1/memif", ""))
	want := n.Pods.Objects(a)
	var checks sync.WaitGroup
	stop := make(chan struct{})
	checks.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got := n.Pods.Objects(a); !slices.Equal(got, want) {
				t.Errorf("objects %v, want %v", got, want)
				return
			}
		}
	})
	for i := range 20 {
		other := sandbox(fmt.Sprint("other", i))
		n.add(t, other)
		n.delete(t, other)
	}
	close(stop)
	checks.Wait()
}

// The names of the variables are those of the interfaces in upper case with "_" for "-" and ".".
func TestClaimsWithTheSameVariableAreRefused(t *testing.T) {
	for _, names := range [][2]string{{"a-b", "a.b"}, {"a_b", "A-B"}} {
		n := newNode(t, four).run(t)
		ev := asking("p", "", "")
		claimed(ev, names[0], 8, pod.InterfaceOptions{})
		claimed(ev, names[1], 9, pod.InterfaceOptions{})
		checkRefusal(t, n.refuses(t, ev), pod.CodeInvalidAnnotation,
			fmt.Sprintf(
				"interfaces %s and %s of claims have the same variable MEMIF_SOCKET_A_B in containers; rename one of them",
				names[0], names[1]))
	}
}
