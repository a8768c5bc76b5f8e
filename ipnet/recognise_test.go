package ipnet_test

import (
	"maps"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// everything is the content of a node's dataplane: the numbers of its networks, and the interfaces of an attachment.
func everything(t testing.TB, n *node, a *pod.Attachment) (networks.Numbers, []attach.Found) {
	t.Helper()
	numbers := networks.Numbers{Tables: map[string]uint32{}, BridgeDomains: map[string]uint32{}}
	byObject := make(map[string]*attach.Found)
	for _, i := range a.Interfaces {
		byObject[i.Object] = &attach.Found{
			Object: i.Object,
			Type:   i.Type,
			PodEnd: attach.PodEnd{Netns: a.Netns, Name: i.Name, MTU: i.MTU},
		}
	}
	for _, value := range n.committer.Values() {
		switch v := value.(type) {
		case wire.VRF:
			numbers.Tables[v.Label] = v.ID
		case wire.BridgeDomain:
			numbers.BridgeDomains[v.Label] = v.ID
		}
	}
	for key, value := range n.committer.Values() {
		for object, f := range byObject {
			if strings.Contains(key, object) {
				show(f, value)
			}
		}
	}
	var found []attach.Found
	for _, f := range byObject { // unordered
		found = append(found, *f)
	}
	return numbers, found
}

// show adds the objects of one value.
func show(f *attach.Found, value any) {
	switch v := value.(type) {
	case wire.TapPeer:
		f.Alias = v.Alias
		f.MAC = v.MAC
	case wire.Veth:
		f.Alias = v.Alias
		f.MAC = v.MAC
	case wire.Neighbour:
		f.Neighbours = append(f.Neighbours, v.Address)
	case wire.LinuxAddress:
		f.Addresses = append(f.Addresses, v.Prefix)
	case wire.BridgeMember:
		f.Labels = []string{v.BridgeDomain}
	case wire.InterfaceVRF:
		f.Labels = []string{v.VRF[:strings.LastIndexByte(v.VRF, '/')]}
	}
}

func networksOfAllKinds() []pod.Network {
	blue := custom("blue", pod.L2, "10.5.0.0/24")
	red := custom("red", pod.L3, "fd00:6::/64", "10.6.0.0/24")
	blue.AntiSpoof = true
	red.VNI = 77
	return []pod.Network{
		red, custom("bare", pod.L2), blue, custom("long-"+strings.Repeat("n", 58), pod.L3, "10.7.0.0/24"),
	}
}

const ofAllKinds = "d/veth,l/tap/long-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn,s/veth/stub,t/tap/blue,u/tap/bare,v/veth/red,w/tap/red"

func TestNetworksAndExtraInterfacesAreReconstructedUnchanged(t *testing.T) {
	for _, kind := range []string{pod.TypeTap, pod.TypeVeth} {
		t.Run(kind, func(t *testing.T) {
			config := newNode(t, four, six).config
			config.Mesh.LinkTypes.Pod = kind
			n := nodeOf(t, config).run(t)
			for i := range networksOfAllKinds() { // one by one, so that they get their numbers in order
				n.set(t, networksOfAllKinds()[:i+1]...)
			}
			was := n.add(t, asking("a", ofAllKinds, ""))
			numbers, found := everything(t, n, was)

			again := nodeOf(t, config)
			recognised := again.Networks.Recognise(networksOfAllKinds(), numbers)
			for _, s := range recognised {
				if s.VNI == 0 || (s.Network.Name == "red") != (s.VNI == 77) {
					t.Errorf("network %s has VNI %d", s.Network.Name, s.VNI)
				}
			}
			attachments, refused := again.Pods.Reconstruct(found, nil)
			if len(attachments) != 1 || len(refused) > 0 {
				t.Fatalf("attachments %v, refused %v", attachments, refused)
			}
			if is := attachments[0]; !reflect.DeepEqual(is.Interfaces, was.Interfaces) {
				t.Errorf("reconstructed %+v, want %+v", is.Interfaces, was.Interfaces)
			}
			again.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: attachments}})
			again.run(t)
			if refused := again.set(t, networksOfAllKinds()...); len(refused) > 0 {
				t.Errorf("refused: %v", refused)
			}
			if got, want := list(t, again.committer.Values()), list(t, n.committer.Values()); got != want {
				t.Errorf("values\n%s\nwant\n%s", got, want)
			}
			stats, _ := n.Networks.Addresses()
			if got, _ := again.Networks.Addresses(); !reflect.DeepEqual(got, stats) {
				t.Errorf("addresses %v, want %v", got, stats)
			}
		})
	}
}

func TestMissingInterfacesAreAddedToAnAttachment(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, custom("blue", pod.L2, "10.5.0.0/24"))
	was := n.add(t, asking("a", "x/tap/blue", ""))
	numbers, found := everything(t, n, was)
	again := newNode(t, four)
	again.Networks.Recognise([]pod.Network{custom("blue", pod.L2, "10.5.0.0/24")}, numbers)
	known := *was
	known.Interfaces = was.Interfaces[:1]
	again.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: []*pod.Attachment{&known}}})
	for _, f := range found {
		if f.Name != "x" {
			continue
		}
		attachments, refused := again.Pods.Reconstruct([]attach.Found{f}, nil)
		if len(refused) > 0 || !reflect.DeepEqual(attachments[0].Interfaces, was.Interfaces) ||
			attachments[0].Pod != was.Pod {
			t.Errorf("got %+v, refused %v", attachments, refused)
		}
	}
	if len(known.Interfaces) != 1 {
		t.Error("a known interface was changed")
	}
}

func TestAmbiguousExtraInterfaceIsNotReconstructed(t *testing.T) {
	n := newNode(t, four).run(t)
	networks := []pod.Network{custom("blue", pod.L2, "10.5.0.0/24"), custom("red", pod.L3, "10.6.0.0/24")}
	n.set(t, networks...)
	was := n.add(t, asking("a", "l2/tap/blue,l3/veth/red", ""))
	prefix := netip.MustParsePrefix
	for name, tt := range map[string]struct {
		link   string
		change func(*attach.Found)
		want   string // in the error; "" = none
	}{
		"in no network, but with addresses": {
			"l3", func(f *attach.Found) { f.Labels = nil }, "expected one network",
		},
		"in two networks": {
			"l3", func(f *attach.Found) { f.Labels = append(f.Labels, "weft:blue") }, "expected one network",
		},
		"in an unknown network": {
			"l2", func(f *attach.Found) { f.Labels = []string{"weft:green"} }, "belongs to no known network",
		},
		"two addresses on the link": {
			"l2", func(f *attach.Found) { f.Addresses = append(f.Addresses, prefix("10.5.0.9/24")) },
			"cannot tell which",
		},
		"no address on the link": {"l2", func(f *attach.Found) { f.Addresses = nil }, "cannot tell which"},
		"the pod's own address": {
			"l2", func(f *attach.Found) { f.Addresses = append(f.Addresses, prefix("10.9.0.9/24")) }, "",
		},
		"an address of another length": {
			"l2", func(f *attach.Found) { f.Addresses = append(f.Addresses, prefix("10.5.0.9/32")) }, "",
		},
		"the pod's own, and a neighbour": {
			"l3", func(f *attach.Found) { f.Addresses = append(f.Addresses, prefix("10.6.0.9/32")) }, "",
		},
		"in another namespace": {"l3", func(f *attach.Found) { f.Netns.Inode++ }, "in network namespace"},
		"an alias of another interface": {
			"l3", func(f *attach.Found) { f.Alias = strings.Replace(f.Alias, "l3", "l2", 1) },
			"alias of another interface",
		},
		"a main interface that is refused": {
			"eth0", func(f *attach.Found) { f.MAC = netaddr.MAC{} }, "Weft configured other values",
		},
	} {
		t.Run(name, func(t *testing.T) {
			numbers, found := everything(t, n, was)
			again := newNode(t, four)
			again.Networks.Recognise(networks, numbers)
			object := ""
			for i := range found {
				if found[i].Name == tt.link {
					tt.change(&found[i])
					object = found[i].Object
				}
			}
			attachments, refused := again.Pods.Reconstruct(found, nil)
			switch err := refused[object]; {
			case tt.want == "" && (len(refused) > 0 || len(attachments[0].Interfaces) != 3):
				t.Errorf("got %+v, refused %v", attachments, refused)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			case tt.link == "eth0" && (len(attachments) > 0 || len(refused) != 3):
				t.Errorf("extra interfaces without a main interface: %+v, refused %v", attachments, refused)
			}
		})
	}
}

func TestNoInterfaceIsReconstructedWithoutTheMainInterface(t *testing.T) {
	n := newNode(t, four).run(t)
	was := n.add(t, asking("a", "x/tap/stub", ""))
	_, found := everything(t, n, was)
	var extra, lost []attach.Found
	for _, f := range found {
		if f.Name == "x" {
			extra = append(extra, f)
		} else {
			lost = append(lost, attach.Found{Object: f.Object})
		}
	}
	attachments, refused := newNode(t, four).Pods.Reconstruct(extra, lost)
	if len(attachments) > 0 || len(refused) != 1 || refused[extra[0].Object] == nil {
		t.Errorf("got %+v, refused %v", attachments, refused)
	}
}

func TestNetworkWithOtherObjectsIsNotRecognised(t *testing.T) {
	blue := custom("blue", pod.L2, "10.5.0.0/24")
	for name, tt := range map[string]struct {
		there  networks.Numbers
		wanted pod.Network
		want   int
	}{
		"unchanged": {
			networks.Numbers{
				Tables:        map[string]uint32{"weft:blue": 5},
				BridgeDomains: map[string]uint32{"weft:blue": 7},
			},
			blue, 1,
		},
		"without any object": {networks.Numbers{}, blue, 0},
		"without its table":  {networks.Numbers{BridgeDomains: map[string]uint32{"weft:blue": 7}}, blue, 0},
		"of another type": {
			networks.Numbers{
				Tables:        map[string]uint32{"weft:blue": 5},
				BridgeDomains: map[string]uint32{"weft:blue": 7},
			},
			custom("blue", pod.L3, "10.5.0.0/24"), 0,
		},
		"an invalid network": {networks.Numbers{Tables: map[string]uint32{"weft:blue": 5}}, custom("blue", pod.L3), 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, four)
			got := n.Networks.Recognise([]pod.Network{tt.wanted}, tt.there)
			if len(got) != tt.want || len(n.Networks.Saved()) != tt.want {
				t.Fatalf("recognised %+v, saved %+v", got, n.Networks.Saved())
			}
			if tt.want > 0 && (got[0].Table != 5 || got[0].BridgeDomain != 7) {
				t.Errorf("numbers %+v", got[0])
			}
			if again := n.Networks.Recognise([]pod.Network{tt.wanted}, tt.there); len(again) > 0 {
				t.Errorf("a known network is recognised again: %+v", again)
			}
		})
	}
}

func TestWithheldAddressesAreNotAllocatedByRecognisedNetworks(t *testing.T) {
	n := newNode(t, four)
	red := custom("red", pod.L3, "10.5.0.0/24")
	n.Networks.Recognise([]pod.Network{red}, networks.Numbers{Tables: map[string]uint32{"weft:red": 5}})
	n.Networks.WithholdAddresses("weft-lost",
		[]netip.Addr{netip.MustParseAddr("10.5.0.2")})
	n.run(t)
	if got := n.add(t, asking("a", "x/tap/red", "")).Interfaces[1].Addresses[0].String(); got != "10.5.0.3/32" {
		t.Errorf("address of the next pod: %s", got)
	}
}

// A VNI of the node's own choice is that of no other network: of the state file, wanted although it is not in the
// dataplane, or recognised.
func TestVNIsOfRecognisedNetworksAreUnique(t *testing.T) {
	n := newNode(t, four)
	lowest := n.Networks.Config.VNIs.First
	n.Networks.Restore(nil, nil, []networks.SavedNetwork{
		{Network: custom("saved", pod.L3, "10.5.0.0/24"), Table: 5, VNI: lowest},
	})
	chosen := custom("chosen", pod.L3, "10.6.0.0/24")
	chosen.VNI = lowest + 1
	wanted := []pod.Network{custom("p", pod.L3, "10.7.0.0/24"), custom("q", pod.L3, "10.8.0.0/24"), chosen}
	got := make(map[string]uint32)
	for _, s := range n.Networks.Recognise(wanted, networks.Numbers{
		Tables: map[string]uint32{"weft:p": 6, "weft:q": 7},
	}) {
		got[s.Network.Name] = s.VNI
	}
	if want := map[string]uint32{"p": lowest + 2, "q": lowest + 3}; !maps.Equal(got, want) {
		t.Errorf("VNIs %v, want %v", got, want)
	}
}
