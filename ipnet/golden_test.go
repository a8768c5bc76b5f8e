package ipnet_test

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: write it with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

func TestValuesOfTheNode(t *testing.T) {
	for name, pools := range families {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pools...).run(t)
			golden(t, "node-"+name, list(t, n.committer.Values()))
		})
	}
}

func TestValuesOfAPod(t *testing.T) {
	for name, pools := range families {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, pools...).run(t)
			before := n.committer.Values()
			a := n.add(t, sandbox("a"))
			values := n.committer.Values()
			values = without(values, before)
			golden(t, "pod-"+name, list(t, values)+list(t, map[string]any{"record": a}))

			objects := n.Pods.Objects(a)
			if slices.Sort(objects); !slices.Equal(objects, slices.Sorted(maps.Keys(values))) {
				t.Errorf("objects %v, want the keys of the values", objects)
			}
		})
	}
}

// cidrs are the CIDRs of a network, by family.
var cidrs = map[string][]string{
	"ip4":  {"10.5.0.0/24"},
	"ip6":  {"2001:db8:5::/64"},
	"dual": {"10.5.0.0/24", "2001:db8:5::/64"},
}

func TestValuesOfANetwork(t *testing.T) {
	cidrs := maps.Clone(cidrs)
	cidrs["none"] = nil
	for family, cidrs := range cidrs {
		for _, kind := range []pod.NetworkType{pod.L2, pod.L3} {
			if len(cidrs) == 0 && kind == pod.L3 {
				continue
			}
			name := fmt.Sprintf("network-%s-%s", kind, family)
			t.Run(name, func(t *testing.T) {
				n := newNode(t, four, six).run(t)
				before := n.committer.Values()
				if refused := n.set(t, custom("blue", kind, cidrs...)); len(refused) > 0 {
					t.Fatal(refused)
				}
				golden(t, name, list(t, without(n.committer.Values(), before))+list(t, n.saver.Bucket("networks")))
				n.set(t)
				if left := without(n.committer.Values(), before); len(left)+len(n.saver.Bucket("networks")) > 0 {
					t.Errorf("left over of the network:\n%s", list(t, left))
				}
			})
		}
	}
}

// The values of an extra interface of each type, on each kind of network, for each family; a restart finds the same,
// and nothing is left over after the DEL.
func TestValuesOfExtraInterfaces(t *testing.T) {
	for family, pools := range families {
		for _, network := range []string{"default", "stub", "L2", "L3"} {
			for _, kind := range []string{pod.TypeTap, pod.TypeVeth, pod.TypeMemif} {
				name := fmt.Sprintf("extra-%s-%s-%s", kind, network, family)
				t.Run(name, func(t *testing.T) {
					extraIsAsGolden(t, name, pools, custom("blue", pod.NetworkType(network), cidrs[family]...))
				})
			}
		}
	}
}

func extraIsAsGolden(t *testing.T, name string, pools []netaddr.Pool, network pod.Network) {
	n := newNode(t, pools...).run(t)
	on := network.Name
	if network.Type != pod.L2 && network.Type != pod.L3 {
		on = string(network.Type)
	} else {
		n.set(t, network)
	}
	empty := n.committer.Values()
	plain := sandbox("a")
	n.add(t, plain)
	before := n.committer.Values()
	n.delete(t, plain)
	n.now = n.now.Add(coolDown)

	ev := asking("a", "x1/"+strings.Split(name, "-")[1]+"/"+on, "")
	ev.Requested.Addresses = addressesOf(before)
	a := n.add(t, ev)
	values := n.committer.Values()
	golden(t, name, list(t, without(values, before))+list(t, map[string]any{"record": a.Interfaces[1]}))
	if objects := n.Pods.Objects(a); len(objects) != len(values)-len(empty) {
		t.Errorf("objects %v, want the keys of the values", objects)
	}
	again := n.restarted(t)
	if got, want := list(t, again.committer.Values()), list(t, values); got != want {
		t.Errorf("after a restart\n%s\nwant\n%s", got, want)
	}
	again.delete(t, ev)
	if got, want := list(t, again.committer.Values()), list(t, empty); got != want {
		t.Errorf("after the DEL\n%s\nwant\n%s", got, want)
	}
}

func TestValuesOfAMainInterfaceOfTypeVeth(t *testing.T) {
	n := nodeOf(t, ipnet.Config{
		Networks: networks.Config{Pools: []netaddr.Pool{four, six}},
		Mesh:     mesh.Config{LinkTypes: mesh.LinkTypes{Pod: pod.TypeVeth}},
	}).run(t)
	before := n.committer.Values()
	a := n.add(t, sandbox("a"))
	golden(t, "pod-veth-dual", list(t, without(n.committer.Values(), before))+list(t, map[string]any{"record": a}))
}

// without returns the values that did not exist before.
func without(values, before map[string]any) map[string]any {
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(key string, _ any) bool { _, was := before[key]; return was })
	return values
}

// addressesOf returns the addresses of the pod's end of a main interface.
func addressesOf(values map[string]any) []netip.Prefix {
	var addresses []netip.Prefix
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if a, ok := values[key].(wire.LinuxAddress); ok && a.Link == "eth0" {
			addresses = append(addresses, netaddr.Single(a.Prefix.Addr()))
		}
	}
	return addresses
}
