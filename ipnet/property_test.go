package ipnet_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// world is a node with a simple model of its expected state.
type world struct {
	*node
	config   ipnet.Config
	networks map[string]pod.Network
	numbers  map[string][3]uint32   // first numbers of a network
	pods     map[string]*pod.AddPod // by sandbox
	lost     map[string]bool        // sandbox and address that a newer sandbox of the same pod has taken over
}

// sandboxes are named by their pod, p1 or p2, and a number.
var sandboxes = []string{"p1", "p1-young", "p2", "p2-young"}

// Networks are set, pods are added and deleted, the agent restarts, and events fail. Numbers are unique and stable,
// addresses are unique on each network, refused events change nothing, and at the end nothing is left over.
func TestNetworksStaySeparateAfterAnyChanges(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := &world{
			config: ipnet.Config{
				Networks: networks.Config{
					Pools: []netaddr.Pool{four, six},
					Ranges: networks.Ranges{
						Tables:        networks.IDs{First: 100, Last: 102},
						BridgeDomains: networks.IDs{First: 1, Last: 2},
					},
				},
				Mesh: mesh.Config{
					LinkTypes: mesh.LinkTypes{Pod: rapid.SampledFrom([]string{"tap", "veth"}).Draw(r, "main")},
				},
			},
			networks: map[string]pod.Network{},
			numbers:  map[string][3]uint32{},
			pods:     map[string]*pod.AddPod{},
			lost:     map[string]bool{},
		}
		w.node = nodeOf(t, w.config).run(t)
		bare := list(t, w.committer.Values())
		r.Repeat(map[string]func(*rapid.T){
			"set networks": w.setNetworks,
			"add":          w.addPod,
			"add again":    w.addPod,
			"delete":       w.deletePod,
			"restart": func(*rapid.T) {
				before := list(t, w.committer.Values())
				w.node = w.restarted(t)
				if after := list(t, w.committer.Values()); after != before {
					r.Fatalf("restarted: -before +after\n%s", cmp.Diff(before, after))
				}
			},
			"": func(r *rapid.T) { w.check(r) },
		})
		for _, name := range slices.Sorted(maps.Keys(w.pods)) {
			w.delete(t, w.pods[name])
		}
		if refused := w.set(t); len(refused) > 0 {
			r.Fatalf("the removal of networks without pods is refused: %v", refused)
		}
		if left := list(t, w.committer.Values()); left != bare {
			r.Fatalf("left over: -want +got\n%s", cmp.Diff(bare, left))
		}
		if kept := w.kept(); len(kept.Attachments)+len(kept.Networks) > 0 ||
			slices.ContainsFunc(kept.Leases, func(l ipam.Lease) bool {
				return l.State != ipam.Cooling || strings.Contains(l.Pool, ":")
			}) {
			r.Fatalf("still saved: %+v", kept)
		}
	})
}

func anyNetwork(r *rapid.T, name string) pod.Network {
	n := custom(name, rapid.SampledFrom([]pod.NetworkType{pod.L2, pod.L3}).Draw(r, "type"))
	if rapid.Bool().Draw(r, "v4") {
		n.CIDRs = append(n.CIDRs, netip.MustParsePrefix("10.5.0.0/29"))
	}
	if rapid.Bool().Draw(r, "v6") {
		n.CIDRs = append(n.CIDRs, netip.MustParsePrefix("fd00:5::/64"))
	}
	n.AntiSpoof = rapid.Bool().Draw(r, "anti-spoof")
	n.MTU = rapid.SampledFrom([]int{0, 1400}).Draw(r, "mtu")
	return n
}

func (w *world) setNetworks(r *rapid.T) {
	var wanted []pod.Network
	for _, name := range rapid.Permutation([]string{"a", "b", "c", "d"}).Draw(r, "order") {
		if was, ok := w.networks[name]; ok && rapid.Bool().Draw(r, "keep") {
			wanted = append(wanted, was)
		} else if rapid.Bool().Draw(r, "there") {
			wanted = append(wanted, anyNetwork(r, name))
		}
	}
	refused := w.set(r, wanted...)
	after := map[string]pod.Network{}
	for _, n := range wanted {
		if refused[n.Name] == "" {
			after[n.Name] = n
		}
	}
	for name, n := range w.networks {
		used := false
		for _, ev := range w.pods {
			used = used ||
				slices.ContainsFunc(ev.Attachment.Interfaces, func(i pod.Interface) bool { return i.Network == name })
		}
		if refused[name] != "" {
			after[name] = n
		}
		if _, stays := after[name]; used && !stays {
			r.Fatalf("network %s is removed, but pods use it", name)
		}
		if _, stays := after[name]; !stays {
			delete(w.numbers, name)
		}
	}
	w.networks = after
}

func (w *world) addPod(r *rapid.T) {
	name := rapid.SampledFrom(sandboxes).Draw(r, "sandbox")
	if w.pods[name] != nil {
		return
	}
	var items []string
	for i := range rapid.IntRange(0, 3).Draw(r, "interfaces") {
		items = append(items, fmt.Sprintf("x%d/%s/%s", i, rapid.SampledFrom([]string{"tap", "veth"}).Draw(r, "type"),
			rapid.SampledFrom([]string{"default", "stub", "a", "b", "c", "d"}).Draw(r, "network")))
	}
	ev := asking(name, strings.Join(items, ","), "")
	ev.ID.Name = name[:2]
	ev.ID.UID = ""
	ev.Mode = rapid.SampledFrom([]string{"", pod.ModeChained, pod.ModeIPAM}).Draw(r, "mode")
	if ev.Mode == pod.ModeIPAM {
		delete(ev.Annotations, pod.AnnotationCustom)
	}
	if ev.Mode != pod.ModeChained && rapid.Bool().Draw(r, "static") {
		ev.Annotations[pod.AnnotationIPs] = `["10.1.0.9"]`
	}
	w.breakIn(rapid.SampledFrom([]string{"", "", "", "later", "commit", "applied", "save"}).Draw(r, "fails in"))
	before := w.state(r)
	_, err := w.loop.Do(context.Background(), ev)
	w.breakIn("")
	if err == nil {
		w.handOver(name, ev)
		w.pods[name] = ev
	} else if after := w.state(r); after != before {
		r.Fatalf("failed with %v: -before +after\n%s", err, cmp.Diff(before, after))
	}
}

// handOver removes the addresses of the new sandbox from older ones of the pod.
func (w *world) handOver(name string, ev *pod.AddPod) {
	for other, older := range w.pods {
		for _, at := range addressesAt(older.Attachment) {
			if older.ID == ev.ID && slices.Contains(addressesAt(ev.Attachment), at) {
				w.lost[other+"@"+at] = true
			}
		}
	}
	maps.DeleteFunc(w.lost, func(lost string, _ bool) bool { return strings.HasPrefix(lost, name+"@") })
}

func (w *world) deletePod(r *rapid.T) {
	name := rapid.SampledFrom(sandboxes).Draw(r, "sandbox")
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(r, "seconds")) * time.Second)
	w.delete(r, sandbox(name))
	delete(w.pods, name)
	maps.DeleteFunc(w.lost, func(lost string, _ bool) bool { return strings.HasPrefix(lost, name+"@") })
}

func (w *world) check(r *rapid.T) {
	seen := map[string]bool{}
	numbers := w.node.numbers()
	for name, now := range numbers {
		was, known := w.numbers[name]
		for i, number := range now {
			if number != 0 && seen[fmt.Sprint(i, number)] {
				r.Fatalf("numbers %v: duplicate", numbers)
			}
			seen[fmt.Sprint(i, number)] = true
			if known && was[i] != 0 && number != 0 && was[i] != number {
				r.Fatalf("network %s had numbers %v, has %v", name, was, now)
			}
		}
		w.numbers[name] = now
	}
	if len(numbers) != len(w.networks) {
		r.Fatalf("networks %v, want %v", numbers, w.networks)
	}
	for name, ev := range w.pods {
		for _, i := range ev.Attachment.Interfaces {
			w.checkApart(r, ev.Attachment, i)
		}
		for _, at := range addressesAt(ev.Attachment) {
			if w.lost[name+"@"+at] {
				continue
			}
			if seen[at] {
				r.Fatalf("pod %s: duplicate address %s", name, at)
			}
			seen[at] = true
		}
	}
}

// addressesAt returns an attachment's addresses with their networks.
func addressesAt(a *pod.Attachment) []string {
	var all []string
	for _, i := range a.Interfaces {
		for _, p := range i.Addresses {
			all = append(all, i.Network+" "+p.Addr().String())
		}
	}
	return all
}

// checkApart fails if a value of an interface names an object of another network.
func (w *world) checkApart(r *rapid.T, a *pod.Attachment, i pod.Interface) {
	values := w.committer.Values()
	for _, f := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		if m, ok := values[wire.InterfaceVRFKey(i.Object, f)].(wire.InterfaceVRF); ok &&
			m.VRF != wire.VRFName("weft:"+networkOr(i, "pods"), f) {
			r.Fatalf("%s of %s is in %s", i.Object, a.Key, m.VRF)
		}
	}
	if m, ok := values[wire.BridgeMemberKey(i.Object)].(wire.BridgeMember); ok && m.BridgeDomain != "weft:"+i.Network {
		r.Fatalf("%s of %s is in %s", i.Object, a.Key, m.BridgeDomain)
	}
	for key, value := range values {
		route, ok := value.(wire.Route)
		if ok && i.Object != "" && route.Paths[0].Interface == i.Object &&
			!strings.HasPrefix(route.VRF, "weft:"+networkOr(i, "pods")+"/") {
			r.Fatalf("%s leads to %s of network %q", key, i.Object, i.Network)
		}
	}
}

func networkOr(i pod.Interface, other string) string {
	if i.Network == "" {
		return other
	}
	return i.Network
}
