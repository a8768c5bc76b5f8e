package ipnet_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/ipam"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/test/must"
)

// editOf returns the event of an edit of a pod's annotations.
func editOf(add *pod.AddPod, interfaces, options string) *pod.ChangePod {
	edited := asking(add.ID.Name, interfaces, options)
	edited.IsEdit = true
	return &pod.ChangePod{Request: edited.Request}
}

func (n *node) edit(t testing.TB, add *pod.AddPod, interfaces, options string) *pod.Attachment {
	t.Helper()
	ev := editOf(add, interfaces, options)
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatalf("%s: %v", ev, err)
	}
	return ev.Attachment
}

// site are the networks of the tests of edits.
func (n *node) site(t testing.TB) {
	t.Helper()
	n.set(t, custom("blue", pod.L2, "10.5.0.0/24"), custom("red", pod.L3, "10.6.0.0/24", "fd00:6::/64"))
}

func interfaceOf(a *pod.Attachment, name string) pod.Interface {
	for _, i := range a.Interfaces {
		if i.Name == name {
			return i
		}
	}
	return pod.Interface{}
}

func TestAnEditKeepsAddressesAndDevices(t *testing.T) {
	n := newNode(t, four).run(t)
	n.site(t)
	add := asking("a", "t1/tap/blue, m1/memif/blue, m2/memif/red", "")
	first := n.add(t, add)
	n.now = n.now.Add(1)

	a := n.edit(t, add, "m2/memif/red, t1/veth/blue, m3/memif/blue", "")
	t1 := interfaceOf(a, "t1")
	if t1.Type != pod.TypeVeth || !slices.Equal(t1.Addresses, interfaceOf(first, "t1").Addresses) {
		t.Errorf("t1 is %+v, the tap had %v", t1, interfaceOf(first, "t1").Addresses)
	}
	if !reflect.DeepEqual(interfaceOf(a, "m2"), interfaceOf(first, "m2")) {
		t.Errorf("m2 changed: %+v", interfaceOf(a, "m2"))
	}
	if m3 := interfaceOf(a, "m3").Memif; m3 == nil || m3.ID != 3 || m3.Socket != 1 {
		t.Errorf("m3 is %+v, want the third memif of the container", m3)
	}
	if slices.ContainsFunc(a.Interfaces, func(i pod.Interface) bool { return i.Name == "m1" }) {
		t.Error("m1 is still there")
	}
	if text := list(t, n.committer.Values()); strings.Contains(text, interfaceOf(first, "m1").Object) {
		t.Errorf("objects of m1 are left:\n%s", text)
	}
}

func TestAnImpossibleEditChangesNothing(t *testing.T) {
	for name, tt := range map[string]struct{ interfaces, options, want string }{
		"an unknown network":           {"t1/tap/blue, t2/tap/green", "", `interface t2: unknown network "green"`},
		"another address":              {"t1/tap/blue", `{"t1": {"ips": ["10.5.0.77"]}}`, "remove the interface first"},
		"the MAC of an interface":      {"t1/tap/blue, t2/tap/red", `{"t2": {"mac": "MAC"}}`, "is already used by interface t1"},
		"the address of an interface":  {"t1/tap/blue, t2/tap/blue", `{"t2": {"ips": ["10.5.0.2"]}}`, "10.5.0.2 is held by pod default/a"},
		"the default route":            {"t1/tap/blue, t2/tap/red", `{"t2": {"defaultRoute": true}}`, "interface eth0 has a route to this destination"},
		"one interface of many":        {"t3/tap/blue, t2/tap/red, t4/tap/green", "", "unknown network"},
		"more memifs than the limit":   {"m1/memif, m2/memif, m3/memif, m4/memif, m5/memif", "", "contivpp.io/memif"},
		"a route through what goes":    {"t2/tap/red", `{"t2": {"routes": [{"to": "10.9.0.0/24", "interface": "t1"}]}}`, "no interface t1"},
		"an annotation that is no one": {"t1/tap/blue, t2", "", "t2"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, four).run(t)
			n.site(t)
			add := asking("a", "t1/tap/blue", "")
			first := n.add(t, add)
			options := strings.ReplaceAll(tt.options, "MAC", interfaceOf(first, "t1").MAC.String())
			if err := n.refuses(t, editOf(add, tt.interfaces, options)); !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want %q", err, tt.want)
			}
		})
	}
}

// A pod in quarantine, and one that is not connected, keep what they have.
func TestOnlyAConnectedPodIsChanged(t *testing.T) {
	n := newNode(t, four).run(t)
	n.site(t)
	add := asking("a", "t1/tap/blue", "")
	n.add(t, add)
	if _, err := n.loop.Do(t.Context(), &pod.WithholdPods{Keys: []pod.Key{add.Key}, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := n.refuses(t, editOf(add, "t2/tap/red", "")); !strings.Contains(err.Error(), "in quarantine") {
		t.Errorf("error %q", err)
	}
}

// Policies know the interfaces of a pod as they are, also after a change that was undone or only planned: rules of an
// interface that policies do not know would be removed.
func TestPoliciesKnowThePodAfterAnEditThatWasUndone(t *testing.T) {
	rules := newRuler()
	config := ipnet.Config{Networks: networks.Config{Pools: []netaddr.Pool{four}}}
	config.Pods.Policies = rules
	n := nodeOf(t, config).run(t)
	n.site(t)
	add := asking("a", "t1/tap/blue, t2/tap/red", "")
	a := n.add(t, add)
	known := func(when string) {
		t.Helper()
		if !reflect.DeepEqual(rules.last[add.Key], a.Interfaces) {
			t.Errorf("%s policies know %d interfaces, the pod has %d", when, len(rules.last[add.Key]), len(a.Interfaces))
		}
	}
	n.fail = true
	_ = n.refuses(t, editOf(add, "t2/tap/red, t3/tap/blue", ""))
	known("after a failure of a later handler")
	n.fail = false
	_ = n.refuses(t, editOf(add, "t2/tap/red, t3/tap/nosuch", ""))
	known("after a refusal")
	_, err := n.loop.Plan(t.Context(), editOf(add, "t2/tap/red", ""))
	must.Succeed(t, err)
	known("after a plan")
	a = n.edit(t, add, "t2/veth/red", "")
	known("after an edit")
}

// Two interfaces on a network have its routes once.
func TestRoutesToANetworkOutliveEdits(t *testing.T) {
	n := newNode(t, four).run(t)
	n.site(t)
	add := asking("a", "t1/tap/red, t2/tap/red", "")
	n.add(t, add)
	routed := func(a *pod.Attachment) (names []string) {
		for _, i := range a.Interfaces[1:] {
			if len(i.Routes) > 0 {
				names = append(names, i.Name)
			}
		}
		return names
	}
	a := n.edit(t, add, "t1/tap/red, t2/tap/red", `{"t1": {"mtu": 1400}}`)
	if got := routed(a); !slices.Equal(got, []string{"t1"}) {
		t.Errorf("interfaces with routes after an edit of t1: %v", got)
	}
	err := n.refuses(t, editOf(add, "t2/tap/red", ""))
	if !strings.Contains(err.Error(), "t1 has the routes to its network") {
		t.Errorf("error %q", err)
	}
	n.edit(t, add, "", "")
	if got := routed(n.edit(t, add, "t2/tap/red", "")); !slices.Equal(got, []string{"t2"}) {
		t.Errorf("interfaces with routes after both were removed, and t2 came again: %v", got)
	}
}

// The program of a memif has its own routes, so a kernel's interface beside it gets those of the network; a second one
// leaves them to the first.
func TestEditsGiveANetworksRoutesToOneInterfaceOfTheKernel(t *testing.T) {
	n := newNode(t, four).run(t)
	n.set(t, sites()...)
	add := asking("a", "m1/memif/left", "")
	n.add(t, add)
	const routes = "[10.79.0.0/24 via 10.78.0.254 10.50.0.0/16 via 10.78.0.254]"
	a := n.edit(t, add, "m1/memif/left, t1/tap/left", "")
	if got := fmt.Sprint(interfaceOf(a, "t1").Routes); got != routes {
		t.Errorf("the tap beside the memif has the routes %s", got)
	}
	a = n.edit(t, add, "m1/memif/left, t1/tap/left, t2/veth/left", "")
	if got := interfaceOf(a, "t2").Routes; len(got) > 0 {
		t.Errorf("the second interface has the routes %v", got)
	}
	if got := fmt.Sprint(interfaceOf(a, "t1").Routes); got != routes {
		t.Errorf("the first interface has the routes %s after the second one came", got)
	}
}

// What two interfaces of a pod cannot have at its creation, an edit cannot give them either.
func TestEditsAreRefusedWhatCreationsAreRefused(t *testing.T) {
	twin := custom("twin", pod.L3, "10.6.0.0/24")
	for name, tt := range map[string]struct {
		networks               []pod.Network
		was, is                string
		optionsWas, optionsAre string
		want                   string
	}{
		"two networks with one destination": {
			[]pod.Network{custom("red", pod.L3, "10.6.0.0/24"), twin},
			"t1/tap/red", "t1/tap/red, t2/tap/twin", "", "", "both lead to 10.6.0.1/32; a pod can have one of them",
		},
		"one prefix behind two interfaces": {
			[]pod.Network{behind()}, "t1/tap/blue", "t1/tap/blue, t2/tap/blue",
			`{"t1": {"routedPrefixes": ["10.60.1.0/24"]}}`,
			`{"t1": {"routedPrefixes": ["10.60.1.0/24"]}, "t2": {"routedPrefixes": ["10.60.0.0/22"]}}`,
			"interfaces t1 and t2 of network blue have the same routedPrefixes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, four).run(t)
			if refused := n.set(t, tt.networks...); len(refused) > 0 {
				t.Fatal(refused)
			}
			created := n.refuses(t, asking("created", tt.is, tt.optionsAre))
			add := asking("edited", tt.was, tt.optionsWas)
			n.add(t, add)
			edited := n.refuses(t, editOf(add, tt.is, tt.optionsAre))
			for _, err := range []error{created, edited} {
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %q, want %q", err, tt.want)
				}
			}
		})
	}
}

func TestAnEditDoesNotChangeTheClaimOfAddresses(t *testing.T) {
	n := newNode(t, four).run(t)
	n.site(t)
	claims := map[string]pod.IPAMClaim{}
	for _, name := range []string{"one", "two"} {
		claims[name] = pod.IPAMClaim{Namespace: "default", Name: name, UID: name, Network: "blue", Interface: "t1"}
	}
	add := asking("a", "t1/tap/blue", `{"t1": {"ipamClaim": "one"}}`)
	add.IPAMClaims = claims
	n.add(t, add)
	for _, options := range []string{`{"t1": {"ipamClaim": "two"}}`, ""} {
		ev := editOf(add, "t1/tap/blue", options)
		ev.IPAMClaims = claims
		if err := n.refuses(t, ev); !strings.Contains(err.Error(), "has the addresses of IPAMClaim one") {
			t.Errorf("options %s: error %q", options, err)
		}
	}
}

// After any edits, possible or not, of which some fail in a later handler: the pod has what the last successful edit
// requests, what was requested before is the same as before, no address is given twice, and at the end nothing is left.
func TestAnyEditsLeaveThePodAsRequested(t *testing.T) {
	items := []string{
		"t1/tap/blue", "t1/veth/blue", "t1/tap/red", "t2/veth/red", "t2/tap", "m1/memif/blue", "m1/memif/red",
		"m2/memif", "s1/tap/stub", "x1/tap/nosuch",
	}
	options := []string{
		"", `{"t1": {"mtu": 1400}}`, `{"t2": {"mac": "02:00:00:00:00:07"}}`, `{"t1": {"ips": ["10.5.0.9"]}}`,
		`{"m1": {"ringSize": 512}}`,
	}
	rapid.Check(t, func(r *rapid.T) {
		n := newNode(t, four, six).run(t)
		n.site(t)
		bare := list(t, n.committer.Values())
		other := n.add(t, asking("b", "t1/tap/blue, t2/tap/red", ""))
		add := asking("a", "t1/tap/blue", "")
		last := n.add(t, add)
		for range rapid.IntRange(1, 6).Draw(r, "edits") {
			var chosen []string
			count := rapid.IntRange(0, 4).Draw(r, "interfaces")
			for _, item := range rapid.Permutation(items).Draw(r, "order")[:count] {
				name, _, _ := strings.Cut(item, "/")
				if !slices.ContainsFunc(chosen, func(c string) bool { return strings.HasPrefix(c, name+"/") }) {
					chosen = append(chosen, item)
				}
			}
			ev := editOf(add, strings.Join(chosen, ","), rapid.SampledFrom(options).Draw(r, "options"))
			n.fail = rapid.IntRange(0, 3).Draw(r, "a later handler fails") == 0
			before := n.state(t)
			_, err := n.loop.Do(t.Context(), ev)
			if err != nil {
				if after := n.state(t); after != before {
					r.Fatalf("%v: before\n%s\nafter\n%s", err, before, after)
				}
				continue
			}
			n.wantEdited(r, last, ev, chosen)
			last = ev.Attachment
			n.wantDistinctAddresses(r, last, other)
		}
		n.fail = false
		n.delete(t, add)
		n.delete(t, asking("b", "", ""))
		if left := list(t, n.committer.Values()); left != bare {
			r.Fatalf("left over: %s", left)
		}
		for _, l := range n.kept().Leases {
			if l.State == ipam.Used || l.State == ipam.Leased {
				r.Fatalf("still saved: %+v", l)
			}
		}
	})
}

// wantEdited compares a pod with the requests of its last edit.
func (n *node) wantEdited(r *rapid.T, before *pod.Attachment, ev *pod.ChangePod, chosen []string) {
	var got []string
	for _, i := range ev.Attachment.Interfaces[1:] {
		item := i.Name + "/" + i.Type
		if i.Network != "" {
			item += "/" + i.Network
		}
		got = append(got, item)
		if !ev.Changes.Ends(i.Name) && !reflect.DeepEqual(i, interfaceOf(before, i.Name)) {
			r.Fatalf("%s was not edited, and changed from %+v to %+v", i.Name, interfaceOf(before, i.Name), i)
		}
	}
	want := slices.Clone(chosen)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.Fatalf("the pod has %v, want %v", got, want)
	}
	if !reflect.DeepEqual(ev.Attachment.Interfaces[0], before.Interfaces[0]) {
		r.Fatalf("the main interface changed to %+v", ev.Attachment.Interfaces[0])
	}
}

// wantDistinctAddresses rejects an address of two interfaces of a network.
func (n *node) wantDistinctAddresses(r *rapid.T, attachments ...*pod.Attachment) {
	held := make(map[string]string)
	for _, a := range attachments {
		for _, i := range a.Interfaces {
			for _, p := range i.Addresses {
				at := fmt.Sprint(cmp.Or(i.Network, pod.DefaultNetwork), " ", netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
				if other, taken := held[at]; taken {
					r.Fatalf("%s and %s of %s have %s", other, i.Name, a.Name(), at)
				}
				held[at] = i.Name
			}
		}
	}
}
