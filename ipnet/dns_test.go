package ipnet_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weftnet/weft/pod"
)

func TestAnInterfaceGetsTheDNSOfItsNetworkOnRequest(t *testing.T) {
	n := newNode(t, four).run(t)
	blue := custom("blue", pod.L2)
	blue.DNS = pod.DNS{Nameservers: []string{"10.5.0.53"}, Domain: "blue.example", Search: []string{"example"}}
	red := custom("red", pod.L3, "10.6.0.0/24")
	red.DNS = pod.DNS{Nameservers: []string{"10.6.0.53"}}
	if refused := n.set(t, blue, red, custom("bare", pod.L2, "10.8.0.0/24")); len(refused) > 0 {
		t.Fatal(refused)
	}
	interfaces := n.add(t, asking("a", "t1/tap/blue, t2/veth/red", `{"t1": {"dns": true}}`)).Interfaces
	for i, want := range []pod.DNS{{}, blue.DNS, {}} {
		if got := interfaces[i].DNS; !reflect.DeepEqual(got, want) {
			t.Errorf("%s has the DNS %+v, want %+v", interfaces[i].Name, got, want)
		}
	}
	for name, tt := range map[string]struct{ interfaces, options, want string }{
		"a network without dns": {
			"t1/tap/bare", `{"t1": {"dns": true}}`, "interface t1: dns: network bare has no dns; remove the option",
		},
		"the network default": {
			"t1/tap", `{"t1": {"dns": true}}`, "interface t1: dns: network default has no dns; remove the option",
		},
		"two networks": {
			"t1/tap/blue, t2/veth/red", `{"t1": {"dns": true}, "t2": {"dns": true}}`,
			`"t2": dns: interface t1 has this option, and a CNI result has one DNS`,
		},
	} {
		if _, err := n.loop.Do(t.Context(), asking("b", tt.interfaces, tt.options)); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
	// One by the annotation, and one by a NetworkAttachmentDefinition.
	event := asking("c", "t1/tap/blue", `{"t1": {"dns": true}}`)
	event.Selected = []pod.InterfaceRequest{{
		Name: "net1", Type: pod.TypeVeth, Network: "red", Definition: "shop/red", Options: pod.InterfaceOptions{DNS: true},
	}}
	if _, err := n.loop.Do(t.Context(), event); err == nil ||
		!strings.Contains(err.Error(), `"net1": dns: interface t1 has this option`) {
		t.Errorf("error %v", err)
	}
}
