package nodeview_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftnet/weft/k8s/api/npwg"
	v1 "github.com/weftnet/weft/k8s/api/v1"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
)

func selects(label, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}
}

func ptr[T any](v T) *T { return &v }

// A node reports each deleted network as closed, also one that it never had: otherwise the network stays.
func TestDeletingListsInvalidNetworksToo(t *testing.T) {
	l := newLab(t)
	for name, spec := range map[string]v1.CustomNetworkSpec{"sound": {Type: v1.L2}, "wrong": {Type: v1.L3}} {
		l.Put(networks, &v1.CustomNetwork{
			ObjectMeta: metav1.ObjectMeta{
				Name:              name,
				Generation:        4,
				DeletionTimestamp: &metav1.Time{Time: time.Now()},
				Finalizers:        []string{v1.FinalizerInUse},
			},
			Spec: spec,
		})
	}
	v := l.Known(nil).View()
	if slices.Sort(v.Deleting); !slices.Equal(v.Deleting, []string{"sound", "wrong"}) || v.Generations["wrong"] != 4 ||
		len(v.Networks) != 1 || !v.Networks[0].Closed {
		t.Errorf("being deleted are %v of generations %v; networks %v", v.Deleting, v.Generations, v.Networks)
	}
}

// A network with addresses limits the sources of its pods, unless it says otherwise.
func TestAntiSpoofIsTheDefaultWithCIDRs(t *testing.T) {
	cidrs := []v1.CIDR{"10.5.0.0/16"}
	for name, c := range map[string]struct {
		spec v1.CustomNetworkSpec
		want bool
	}{
		"l2 with cidrs":           {v1.CustomNetworkSpec{Type: v1.L2, CIDRs: cidrs}, true},
		"l3":                      {v1.CustomNetworkSpec{Type: v1.L3, CIDRs: cidrs}, true},
		"l2 without cidrs":        {v1.CustomNetworkSpec{Type: v1.L2}, false},
		"direct":                  {v1.CustomNetworkSpec{Type: v1.L2, Direct: true}, false},
		"disabled with cidrs":     {v1.CustomNetworkSpec{Type: v1.L3, CIDRs: cidrs, AntiSpoof: ptr(false)}, false},
		"enabled without cidrs":   {v1.CustomNetworkSpec{Type: v1.L2, AntiSpoof: ptr(true)}, true},
		"enabled with cidrs, too": {v1.CustomNetworkSpec{Type: v1.L2, CIDRs: cidrs, AntiSpoof: ptr(true)}, true},
	} {
		n, err := nodeview.NetworkOf(&v1.CustomNetwork{ObjectMeta: metav1.ObjectMeta{Name: "blue"}, Spec: c.spec})
		if err != nil || n.AntiSpoof != c.want {
			t.Errorf("%s: antiSpoof is %t, want %t; %v", name, n.AntiSpoof, c.want, err)
		}
	}
}

// API servers refuse them by rules of the definition, which an older one lacks.
func TestANetworkWithoutBlocksIsRefused(t *testing.T) {
	for name, spec := range map[string]v1.CustomNetworkSpec{
		"smaller than the default block": {CIDRs: []v1.CIDR{"10.9.0.0/28"}},
		"smaller than its block":         {CIDRs: []v1.CIDR{"fd00:9::/120"}, BlockSizeV6: 116},
		"blocks without addresses":       {CIDRs: []v1.CIDR{"10.9.0.0/16"}, BlockSize: 64},
	} {
		spec.Type = v1.L3
		_, err := nodeview.NetworkOf(&v1.CustomNetwork{ObjectMeta: metav1.ObjectMeta{Name: "blue"}, Spec: spec})
		if err == nil || !strings.Contains(err.Error(), "network blue: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheDNSOfANetworkIsConvertedAndValidated(t *testing.T) {
	network := &v1.CustomNetwork{ObjectMeta: metav1.ObjectMeta{Name: "blue"}, Spec: v1.CustomNetworkSpec{Type: v1.L2}}
	network.Spec.DNS = &v1.DNS{
		Nameservers: []v1.Nameserver{"10.5.0.53", "fd00:5::35"},
		Domain:      "blue.example",
		Search:      []v1.Domain{"example."},
		Options:     []v1.ResolverOption{"ndots:2"},
	}
	n, err := nodeview.NetworkOf(network)
	want := pod.DNS{
		Nameservers: []string{"10.5.0.53", "fd00:5::35"},
		Domain:      "blue.example",
		Search:      []string{"example."},
		Options:     []string{"ndots:2"},
	}
	if err != nil || !reflect.DeepEqual(n.DNS, want) {
		t.Errorf("%+v, %v", n.DNS, err)
	}
	network.Spec.DNS.Search = []v1.Domain{"no domain"}
	if _, err := nodeview.NetworkOf(network); err == nil ||
		err.Error() != `network "blue": dns: search: "no domain" is not a domain` {
		t.Errorf("error %v", err)
	}
}

func TestNetworksAreConverted(t *testing.T) {
	l := newLab(t)
	l.Namespace("a", map[string]string{"team": "x"}, nil)
	l.Namespace("b", map[string]string{"team": "x"}, nil)
	l.Namespace("c", map[string]string{"team": "y"}, nil)
	l.Network("blue", v1.CustomNetworkSpec{
		Type:              v1.L3,
		CIDRs:             []v1.CIDR{"10.5.0.0/16", "fd00:5::/64"},
		MTU:               ptr(int32(1400)),
		VNI:               ptr(int32(77)),
		AntiSpoof:         ptr(true),
		NamespaceSelector: selects("team", "x"),
	})
	l.Network("shared", v1.CustomNetworkSpec{
		Type: v1.L2, AllowedAddresses: []v1.AddressRange{"10.9.0.7", "fd09::/120"}, VirtualRouters: []int32{51},
		VLANs: []v1.VLANRange{"300", "100-199"},
	})
	l.Network("open", v1.CustomNetworkSpec{Type: v1.L2, NamespaceSelector: &metav1.LabelSelector{}})
	l.Network("shut", v1.CustomNetworkSpec{Type: v1.L2, NamespaceSelector: selects("team", "z")})
	l.Network("wrong", v1.CustomNetworkSpec{Type: v1.L3})
	l.Network("thief", v1.CustomNetworkSpec{Type: v1.L2, VNI: ptr(int32(77))})
	c := l.Known(nil)
	v := c.View()
	byName := map[string]pod.Network{}
	for _, n := range v.Networks {
		byName[n.Name] = n
	}
	blue := byName["blue"]
	want := "{blue L3 [10.5.0.0/16 fd00:5::/64] 1400 77 [a b] true  [] [] [] {[]  [] []} [] [] [] []  false false}"
	if got := fmt.Sprint(blue); got != want || v.Generations["blue"] != 3 {
		t.Errorf("got %s of generation %d, want %s of 3", got, v.Generations["blue"], want)
	}
	shared := byName["shared"]
	if got := fmt.Sprint(shared.AllowedAddresses, shared.VirtualRouters); got != "[10.9.0.7 fd09::-fd09::ff] [51]" {
		t.Errorf("what moves on shared: %s", got)
	}
	open := byName["open"]
	shut := byName["shut"]
	if !open.Admits("any") {
		t.Error("an empty selector admits not all")
	}
	if shut.Admits("a") || shut.Admits("c") {
		t.Error("a selector that selects nothing admits a namespace")
	}
	faults := fmt.Sprint(v.Faults)
	if len(v.Faults) != 2 || !strings.Contains(faults, "CustomNetwork wrong: ") ||
		!strings.Contains(faults, "VNI 77 is that of the older network blue") {
		t.Errorf("faults %v", v.Faults)
	}
}

func TestAChangedNamespaceChangesTheAdmittedNamespaces(t *testing.T) {
	l := newLab(t)
	l.Network("blue", v1.CustomNetworkSpec{Type: v1.L2, NamespaceSelector: selects("team", "x")})
	c := l.Known(nil)
	admits := func() bool { v := c.View(); return v.Networks[0].Admits("late") }
	if admits() {
		t.Fatal("admitted before it exists")
	}
	l.Namespace("late", map[string]string{"team": "x"}, nil)
	l.Eventually("the namespace is admitted", admits)
	l.Remove("namespaces", "", "late")
	l.Eventually("the namespace is gone", func() bool { return !admits() })
}

func TestPoolsAreConverted(t *testing.T) {
	l := newLab(t)
	l.Node("n1", func(n *corev1.Node) { n.Annotations = map[string]string{pod.AnnotationPools: `["fast"]`} })
	l.Namespace("a", nil, map[string]string{pod.AnnotationPools: `["slow","fast"]`})
	l.Namespace("b", nil, map[string]string{pod.AnnotationPools: `slow`})
	l.Pool("slow", "10.1.0.0/16", 5*time.Hour, nil)
	l.Pool("fast", "10.2.0.0/16", 4*time.Hour, func(s *v1.IPPoolSpec) {
		s.BlockSize = ptr(int32(28))
		s.StrictAffinity = ptr(false)
	})
	l.Pool("there", "10.3.0.0/16", 3*time.Hour, func(s *v1.IPPoolSpec) { s.NodeSelector = selects("zone", "b") })
	l.Pool("off", "fd00:4::/64", 2*time.Hour, func(s *v1.IPPoolSpec) { s.Disabled = true })
	l.Pool("late", "10.1.128.0/17", time.Hour, nil)
	l.Put(configs, &v1.WeftConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
		Spec: v1.WeftConfigSpec{Addresses: v1.AddressesSpec{
			Borrowing: true, LowWater: ptr(int32(60)), ReleaseAfter: &metav1.Duration{Duration: time.Minute},
		}},
	})
	v := l.Known(nil).View()
	var got []string
	for _, p := range v.ClaimedFrom() {
		got = append(got,
			fmt.Sprintf("%s %s/%d closed=%t borrowing=%t", p.Name, p.Prefix, p.Bits, p.Closed, p.Borrowing))
	}
	want := []string{
		"slow 10.1.0.0/16/26 closed=false borrowing=false", "fast 10.2.0.0/16/28 closed=false borrowing=true",
		"there 10.3.0.0/16/26 closed=true borrowing=false", "off fd00:4::/64/122 closed=true borrowing=false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	faults := fmt.Sprint(v.Faults)
	if len(v.Faults) != 2 || !strings.Contains(faults, "overlaps 10.1.0.0/16 of the older pool slow") ||
		!strings.Contains(faults, "Namespace b: ") {
		t.Errorf("faults %s", faults)
	}
	if fmt.Sprint(v.NamespacePools) != "map[a:[slow fast]]" || fmt.Sprint(v.Node.Pools) != "[fast]" {
		t.Errorf("pools of namespaces %v, of the node %v", v.NamespacePools, v.Node.Pools)
	}
	marks := blocks.Marks{Low: 60, High: 60, Grace: time.Minute, MaxBlocks: blocks.DefaultMarks().MaxBlocks}
	if v.Switches.Marks != marks || !v.Switches.Borrowing {
		t.Errorf("switches %+v", v.Switches)
	}
	for low, want := range map[*int32]int{nil: 3, ptr(int32(60)): 0} {
		l.Put(configs, &v1.WeftConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec: v1.WeftConfigSpec{Addresses: v1.AddressesSpec{
				LowWater: low, WarmBlocks: ptr(int32(3)),
			}},
		})
		if got := l.Known(nil).View().Switches.Marks.WarmBlocks; got != want {
			t.Errorf("with lowWater %v and warmBlocks 3 the node has %d blocks ready, want %d", low, got, want)
		}
	}
	var names []string
	for _, p := range v.AllocatorPools() {
		names = append(names, fmt.Sprintf("%s disabled=%t blocks=%t", p.Name, p.Disabled, p.Blocks))
	}
	want = []string{
		"slow disabled=false blocks=true", "fast disabled=false blocks=true", "there disabled=true blocks=true",
		"off disabled=true blocks=true",
	}
	if !slices.Equal(names, want) {
		t.Errorf("pools of the allocator %q, want %q", names, want)
	}
}

func TestThePauseAndItsReason(t *testing.T) {
	l := newLab(t)
	c := l.Known(nil)
	if v := c.View(); v.Paused != "" || v.Switches.Marks != blocks.DefaultMarks() {
		t.Errorf("without a WeftConfig: %+v", v)
	}
	for _, tt := range []struct{ reason, want string }{
		{"", "the cluster is paused"}, {"maintenance of the fabric", "maintenance of the fabric"},
	} {
		l.Put(configs, &v1.WeftConfig{
			ObjectMeta: metav1.ObjectMeta{Name: "default"},
			Spec:       v1.WeftConfigSpec{Paused: true, PausedReason: tt.reason},
		})
		l.Eventually("paused: "+tt.want, func() bool { return c.View().Paused == tt.want })
	}
	l.Remove(configs, "", "default")
	l.Eventually("not paused", func() bool { return c.View().Paused == "" })
}

func TestReadNode(t *testing.T) {
	l := newLab(t)
	n, err := nodeview.ReadNode(t.Context(), l.Client(), "n1")
	if err != nil || n.UID != "uid of n1" || len(n.Addresses) != 1 || n.Addresses[0].String() != "10.200.0.11" {
		t.Errorf("node %+v, error %v", n, err)
	}
	if err := n.HasRanges("n1"); err == nil || !strings.Contains(err.Error(), "allocate-node-cidrs") {
		t.Errorf("without podCIDRs: error %v", err)
	}
	l.Node("n1", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24", "fd00:244:1::/64"} })
	if n, err = nodeview.ReadNode(t.Context(), l.Client(), "n1"); err != nil || n.HasRanges("n1") != nil ||
		len(n.PodCIDRs) != 2 {
		t.Errorf("node %+v, error %v", n, err)
	}
	if _, err := nodeview.ReadNode(t.Context(), l.Client(), "n9"); err == nil {
		t.Error("a node that is not there was found")
	}
}

func TestExternalInterfacesAndDefinitions(t *testing.T) {
	l := newLab(t)
	l.Put(external, &v1.ExternalInterface{
		ObjectMeta: metav1.ObjectMeta{Name: "out", Generation: 3},
		Spec: v1.ExternalInterfaceSpec{Network: "blue", Nodes: []v1.ExternalNode{
			{Node: "n2", Interface: "eth9"}, {
				Node:      "n1",
				Interface: "eth1",
				VLAN:      ptr(int32(200)),
				IPs:       []string{"192.0.2.1/24"},
			},
		}},
	})
	l.Put(external, &v1.ExternalInterface{
		ObjectMeta: metav1.ObjectMeta{Name: "trunk", Generation: 3},
		Spec: v1.ExternalInterfaceSpec{Network: "blue", Nodes: []v1.ExternalNode{{
			Node:      "n1",
			Interface: "eth2",
			VLANs:     []v1.VLANRange{"300", "100-199"},
			OuterVLAN: ptr(int32(500)),
		}}},
	})
	l.Put(nads, &npwg.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "blue"},
		Spec:       npwg.NetworkAttachmentDefinitionSpec{Config: `{"type":"weft-cni"}`},
	})
	c := l.Known(nil)
	if v := c.View(); fmt.Sprint(v.Externals) != "[{{out n1 blue eth1 200  0 <nil> [192.0.2.1/24]} 3} "+
		"{{trunk n1 blue eth2 0 100-199, 300 500 <nil> []} 3}]" {
		t.Errorf("externals %v", v.Externals)
	}
	l.Eventually("the definition is known", func() bool {
		return c.View().Definitions["a/blue"].Config == `{"type":"weft-cni"}`
	})
}

func TestAClusterWithoutMultusIsComplete(t *testing.T) {
	l := newLab(t)
	l.Uninstall(nads)
	l.Known(nil)
}

func TestMissingListsKinds(t *testing.T) {
	l := newLab(t)
	l.Uninstall(pools)
	c := l.Cluster(nil)
	l.Eventually("only the pools are missing", func() bool { return fmt.Sprint(c.Missing()) == "[pools]" })
	if c.View().Complete {
		t.Error("the view is complete without pools")
	}
}

func TestAViewOutlivesTheAgent(t *testing.T) {
	l := newLab(t)
	l.Pool("pods", "10.1.0.0/16", time.Hour, nil)
	l.Network("blue", v1.CustomNetworkSpec{Type: v1.L2, VNI: ptr(int32(5))})
	v := l.Known(nil).View()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var kept nodeview.View
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	l.Disconnect()
	c := l.Cluster(func(c *nodeview.Config) { c.Known = &kept })
	got := c.View()
	if got.Complete || fmt.Sprint(got.Networks) != fmt.Sprint(v.Networks) ||
		fmt.Sprint(got.ClaimedFrom()) != fmt.Sprint(v.ClaimedFrom()) || got.Node.UID != v.Node.UID {
		t.Errorf("without an API server: %+v, want what was known: %+v", got, v)
	}
	l.Network("green", v1.CustomNetworkSpec{Type: v1.L2})
	l.Reconnect()
	l.Eventually("the view is complete", func() bool { return c.View().Complete && len(c.View().Networks) == 2 })
}

func TestTheViewStaysWhileTheAPIServerIsAway(t *testing.T) {
	l := newLab(t)
	l.Network("blue", v1.CustomNetworkSpec{Type: v1.L2})
	c := l.Known(nil)
	<-c.Changed()
	l.Disconnect()
	if v := c.View(); !v.Complete || len(v.Networks) != 1 {
		t.Errorf("the view is %+v", v)
	}
	l.Network("green", v1.CustomNetworkSpec{Type: v1.L2})
	l.Reconnect()
	l.Eventually("the change is published", func() bool {
		select {
		case <-c.Changed():
		default:
		}
		return len(c.View().Networks) == 2
	})
}

// The switches are those of the view in each state of the watch.
func TestSwitchesAreThoseOfTheView(t *testing.T) {
	saved := &nodeview.View{Switches: nodeview.Switches{PodInterfaces: true}}
	for name, tt := range map[string]struct {
		spec  *v1.WeftConfigSpec
		known *nodeview.View
	}{
		"defaults":             {},
		"changes are off":      {spec: &v1.WeftConfigSpec{InterfaceChanges: ptr(false)}},
		"pod interfaces off":   {spec: &v1.WeftConfigSpec{PodInterfaces: ptr(false)}},
		"of an earlier run":    {known: saved},
		"of now, not of a run": {spec: &v1.WeftConfigSpec{InterfaceChanges: ptr(false)}, known: saved},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			if tt.spec != nil {
				l.Put(configs, &v1.WeftConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: *tt.spec})
			}
			c := l.Known(func(config *nodeview.Config) { config.Known = tt.known })
			got, isComplete := c.Switches()
			if want := c.View().Switches; got != want || !isComplete {
				t.Errorf("switches %+v, complete %v; the view has %+v", got, isComplete, want)
			}
		})
	}
	before, err := nodeview.New(nodeview.Config{Node: "n1", Client: newLab(t).Client(), Known: saved})
	if err != nil {
		t.Fatal(err)
	}
	if got, isComplete := before.Switches(); isComplete || got != saved.Switches {
		t.Errorf("before the watch has shown anything: %+v, complete %v", got, isComplete)
	}
}

func TestPodInterfacesAreOnByDefault(t *testing.T) {
	for _, tt := range []struct {
		spec *v1.WeftConfigSpec
		want bool
	}{{nil, true}, {&v1.WeftConfigSpec{Paused: true}, true}, {&v1.WeftConfigSpec{PodInterfaces: ptr(false)}, false}} {
		l := newLab(t)
		if tt.spec != nil {
			l.Put(configs, &v1.WeftConfig{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: *tt.spec})
		}
		if got := l.Known(nil).View().Switches.PodInterfaces; got != tt.want {
			t.Errorf("with %+v PodInterfaces are written: %v", tt.spec, got)
		}
	}
}

// Each field of the spec has a value of its own, so that none can be read in place of another.
func TestEachFieldOfASiteIsConverted(t *testing.T) {
	spec := v1.CustomNetworkSpec{
		Type:             v1.L2,
		CIDRs:            []v1.CIDR{"10.5.0.0/24", "fd05::/64"},
		Gateway:          "10.5.0.254,fd05::fe",
		Reserved:         []v1.AddressRange{"10.5.0.1-10.5.0.9"},
		Excluded:         []v1.AddressRange{"10.5.0.128/26", "fd05::8000/113"},
		AllowedAddresses: []v1.AddressRange{"10.5.0.10"},
		VirtualRouters:   []int32{51},
		Routes: []v1.Route{
			{To: "10.6.0.0/16", Via: "10.5.0.11", Metric: 7}, {To: "fd06::/64", Via: "fd05::11"},
		},
		VLANs: []v1.VLANRange{"100-199"},
		DNS: &v1.DNS{
			Nameservers: []v1.Nameserver{"10.5.0.53"}, Domain: "example", Search: []v1.Domain{"a.example"},
			Options: []v1.ResolverOption{"ndots:2"},
		},
		MTU: ptr(int32(1400)), VNI: ptr(int32(77)), AntiSpoof: ptr(false),
	}
	network, err := nodeview.NetworkOf(&v1.CustomNetwork{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(network)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"site","type":"L2","cidrs":["10.5.0.0/24","fd05::/64"],"mtu":1400,"vni":77,` +
		`"antiSpoof":false,"gateway":"10.5.0.254,fd05::fe","reserved":["10.5.0.1-10.5.0.9"],` +
		`"excluded":["10.5.0.128-10.5.0.191","fd05::8000-fd05::ffff"],"routes":[{"to":"10.6.0.0/16",` +
		`"via":"10.5.0.11","metric":7},{"to":"fd06::/64","via":"fd05::11"}],` +
		`"dns":{"nameservers":["10.5.0.53"],"domain":"example","search":["a.example"],` +
		`"options":["ndots:2"]},"allowedAddresses":["10.5.0.10"],"virtualRouters":[51],"vlans":["100-199"]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	routed, err := nodeview.NetworkOf(&v1.CustomNetwork{
		ObjectMeta: metav1.ObjectMeta{Name: "behind"},
		Spec: v1.CustomNetworkSpec{
			Type: v1.L3, CIDRs: []v1.CIDR{"10.5.0.0/24"}, RoutedPrefixes: []v1.CIDR{"10.60.0.0/16"},
		},
	})
	if err != nil || fmt.Sprint(routed.RoutedPrefixes) != "[10.60.0.0/16]" {
		t.Errorf("routedPrefixes %v, %v", routed.RoutedPrefixes, err)
	}
}
