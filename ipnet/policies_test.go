package ipnet_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet"
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// ruler decides about the rules of pods like k8s/policies.
type ruler struct {
	rules     map[string]attach.Rules // of all pods
	changed   map[string]bool
	admitted  map[pod.Key]bool
	addresses []netip.Prefix
	isAway    bool // the cluster is not known

	last map[pod.Key][]pod.Interface // of each attachment, as it was admitted last
}

func newRuler() *ruler {
	return &ruler{
		rules:    map[string]attach.Rules{},
		changed:  map[string]bool{},
		admitted: map[pod.Key]bool{},
		last:     map[pod.Key][]pod.Interface{},
	}
}

func (r *ruler) Admit(a *pod.Attachment, node []netip.Prefix) (rules attach.Rules, isWhole bool) {
	r.admitted[a.Key] = true
	r.last[a.Key] = a.Interfaces
	r.addresses = node
	if !r.isAway {
		return r.rules[a.Pod.String()], true
	}
	closed := attach.Rules{}
	for _, i := range a.Interfaces {
		closed[i.Name] = policy.Closed(node)
	}
	return closed, false
}

func (r *ruler) Dismiss(a *pod.Attachment) { delete(r.admitted, a.Key) }

func (r *ruler) Changed([]netip.Prefix) map[string]attach.Rules {
	all := make(map[string]attach.Rules)
	for name := range r.changed {
		all[name] = r.rules[name]
	}
	clear(r.changed)
	return all
}

// set changes the rules of a pod's interfaces.
func (r *ruler) set(name string, lists policy.Lists, interfaces ...string) {
	rules := attach.Rules{}
	for _, i := range interfaces {
		rules[i] = lists
	}
	r.rules["default/"+name] = rules
	r.changed["default/"+name] = true
}

// listsFrom permit TCP port 80 from an address only.
func listsFrom(name, remote string) policy.Lists {
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	port := policy.PortRange{Protocol: policy.TCP, Range: policy.Range{First: 80, Last: 80}}
	return policy.Lists{
		{Name: name, Rules: []policy.Rule{
			{Remotes: []netip.Prefix{netip.MustParsePrefix(remote)}, Ports: []policy.PortRange{port}, Origin: "p"},
			{Action: policy.Deny, Remotes: all, Origin: "isolated"},
		}},
		{Name: "open", Rules: []policy.Rule{{Remotes: all}}},
	}
}

func policedNode(t *testing.T, r *ruler) *node {
	return nodeOf(t, ipnet.Config{
		Networks: networks.Config{Pools: []netaddr.Pool{four}},
		Pods:     attach.Config{Policies: r},
	})
}

func (n *node) changePolicies(t *testing.T) int {
	t.Helper()
	ev := &attach.ChangePolicies{}
	if _, err := n.loop.Do(context.Background(), ev); err != nil {
		t.Fatal(err)
	}
	return ev.Pods
}

// policyACLs lists the names of ACLs of policies.
func (n *node) policyACLs() (names []string) {
	for key, value := range n.committer.Values() {
		if v, is := value.(wire.ACL); is && key != wire.ACLKey("weft:guard") {
			names = append(names, v.Label)
		}
	}
	slices.Sort(names)
	return names
}

func onPod(name, extra string) *pod.AddPod {
	ev := asking(name, extra, "")
	ev.ID = pod.ID{Namespace: "default", Name: name, UID: "uid-" + name}
	return ev
}

func TestPodIsConnectedBehindItsRules(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	n.set(t, append(networksOf(n), custom("red", pod.L2, "10.6.0.0/24"), custom("blue", pod.L3, "10.5.0.0/24"))...)
	r.set("a", listsFrom("x", "10.1.0.9/32"), "eth0", "r", "b")
	a := n.add(t, onPod("a", "r/tap/red, b/veth/blue, free/tap/blue"))
	values := n.committer.Values()
	for _, i := range a.Interfaces {
		got, _ := values[wire.InterfaceACLKey(i.Object)].(wire.InterfaceACL)
		var want wire.InterfaceACL
		switch i.Name {
		case "eth0", "b":
			want = wire.InterfaceACL{
				Interface: i.Object,
				Input:     []string{"weft:egress:open"},
				Output:    []string{"weft:ingress:x"},
			}
		case "r":
			want = wire.InterfaceACL{
				Interface: i.Object,
				Input:     []string{"weft:guarded-egress:open"},
				Output:    []string{"weft:ingress:x"},
			}
		}
		if !got.Equal(want) {
			t.Errorf("%s: %+v, want %+v", i.Name, got, want)
		}
		for key, value := range values {
			switch v := value.(type) {
			case wire.InterfaceVRF:
				if v.Interface == i.Object && v.Filtered != (i.Name != "free") {
					t.Errorf("%s: filtered %t", key, v.Filtered)
				}
			case wire.BridgeMember:
				if v.Interface == i.Object && !v.Filtered {
					t.Errorf("%s joins before its ACL", key)
				}
			}
		}
	}
	if got, want := n.policyACLs(), []string{
		"weft:egress:open", "weft:guarded-egress:open", "weft:ingress:x",
	}; !slices.Equal(got, want) {
		t.Errorf("ACLs %v, want %v", got, want)
	}
	if len(r.addresses) == 0 {
		t.Error("the addresses of the node are unknown to policies")
	}
}

func TestChangedRulesReplaceTheACLsOfTheirPodsOnly(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	r.set("a", listsFrom("x", "10.1.0.9/32"), "eth0")
	r.set("b", listsFrom("x", "10.1.0.9/32"), "eth0")
	a := n.add(t, onPod("a", ""))
	b := n.add(t, onPod("b", ""))
	c := n.add(t, onPod("c", ""))
	inputOf := func(at *pod.Attachment) string {
		v, _ := n.committer.Values()[wire.InterfaceACLKey(at.Interfaces[0].Object)].(wire.InterfaceACL)
		return strings.Join(v.Output, " ")
	}
	if n.changePolicies(t) != 0 {
		t.Error("the rules are those of ADD, yet they changed")
	}
	r.set("a", listsFrom("y", "10.1.0.8/32"), "eth0")
	if got := n.changePolicies(t); got != 1 || inputOf(a) != "weft:ingress:y" || inputOf(b) != "weft:ingress:x" ||
		inputOf(c) != "" {
		t.Errorf("%d pods changed; a %q, b %q, c %q", got, inputOf(a), inputOf(b), inputOf(c))
	}
	if got, want := n.policyACLs(), []string{"weft:egress:open", "weft:ingress:x", "weft:ingress:y"}; !slices.Equal(got,
		want) {
		t.Errorf("ACLs %v, want %v", got, want)
	}
	r.set("b", policy.Lists{})
	n.changePolicies(t)
	n.delete(t, onPod("a", ""))
	if got := n.policyACLs(); len(got) != 0 || inputOf(b) != "" {
		t.Errorf("without rules: ACLs %v, b %q", got, inputOf(b))
	}
	if r.admitted[a.Key] || !r.admitted[b.Key] {
		t.Errorf("admitted %v", r.admitted)
	}
}

// The rules of a node may take much memory: an event converts only those that changed.
func TestEventsKeepTheACLsThatStay(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	r.set("a", listsFrom("x", "10.1.0.9/32"), "eth0")
	r.set("b", listsFrom("z", "10.1.0.9/32"), "eth0")
	n.add(t, onPod("a", ""))
	n.add(t, onPod("b", ""))
	rules := func() map[string]*wire.ACLRule {
		all := make(map[string]*wire.ACLRule)
		for _, s := range n.Pods.Values() {
			if acl, is := s.Value.(wire.ACL); is {
				all[acl.Label] = &acl.Rules[0]
			}
		}
		return all
	}
	before := rules()
	r.set("a", listsFrom("y", "10.1.0.8/32"), "eth0")
	if n.changePolicies(t) != 1 {
		t.Fatal("no rules changed")
	}
	after := rules()
	if before["weft:ingress:z"] == nil || before["weft:ingress:z"] != after["weft:ingress:z"] ||
		after["weft:ingress:y"] == nil || after["weft:ingress:x"] != nil {
		t.Errorf("ACLs %v, then %v", before, after)
	}
}

func TestFailedAddLeavesNoRules(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	r.set("a", listsFrom("x", "10.1.0.9/32"), "eth0")
	n.fail = true
	if _, err := n.loop.Do(context.Background(), onPod("a", "")); err == nil {
		t.Fatal("no error")
	}
	if got := n.policyACLs(); len(got) != 0 || len(r.admitted) != 0 ||
		n.Pods.Lists(pod.ID{Namespace: "default", Name: "a"}) != nil {
		t.Errorf("ACLs %v, admitted %v", got, r.admitted)
	}
}

// keptRules returns the rules that the state file has.
func (n *node) keptRules() (rules []attach.SavedRules, lists []attach.SavedList) {
	for _, v := range n.saver.Bucket(attach.RulesBucket) {
		rules = append(rules, v.(attach.SavedRules))
	}
	for _, v := range n.saver.Bucket(attach.ListsBucket) {
		lists = append(lists, v.(attach.SavedList))
	}
	return rules, lists
}

func TestRulesHoldAfterARestartUntilTheClusterIsKnown(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	r.set("a", listsFrom("x", "10.1.0.9/32"), "eth0")
	n.add(t, onPod("a", ""))
	n.add(t, onPod("b", ""))
	r.rules = map[string]attach.Rules{} // the API server does not answer
	r.admitted = map[pod.Key]bool{}
	again := n.restarted(t)
	if got, want := list(t, again.committer.Values()), list(t, n.committer.Values()); got != want {
		t.Errorf("values\n%s\nwant\n%s", got, want)
	}
	if len(r.admitted) != 2 {
		t.Errorf("admitted %v", r.admitted)
	}
	clear(r.changed)
	r.set("a", policy.Lists{})
	again.changePolicies(t)
	if rules, lists := again.keptRules(); len(rules)+len(lists) != 0 {
		t.Errorf("the state file has %v, %v", rules, lists)
	}
}

func TestPodsOfALostStateFileAreClosedUntilTheClusterIsKnown(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	a := n.add(t, onPod("a", ""))
	again := policedNode(t, r)
	again.Restore(ipnet.Saved{Saved: attach.Saved{Attachments: []*pod.Attachment{a}, Rebuilt: true}})
	again.run(t)
	lists := again.Pods.Lists(a.Pod)["eth0"]
	if lists[policy.Ingress] == nil ||
		lists[policy.Ingress].Decide(netip.MustParseAddr("10.1.0.9"), policy.TCP, 80).Action != policy.Deny {
		t.Errorf("the pod is open: %v", lists)
	}
	if lists[policy.Ingress].Decide(netip.MustParseAddr("10.1.0.1"), policy.TCP, 80).Action != policy.Allow {
		t.Error("the node does not reach it")
	}
	if len(again.policyACLs()) != 2 {
		t.Errorf("ACLs %v", again.policyACLs())
	}
}

// The rules that an event learns of are those of the pod, which may have other attachments: their interfaces get them
// too, because no later event sees a change.
func TestRulesOfAnEventAreThoseOfAllAttachments(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	n.set(t, append(networksOf(n), lan(false), custom("red", pod.L2, "10.6.0.0/24"))...)
	a := n.add(t, onPod("a", ""))
	output := func() string {
		v, _ := n.committer.Values()[wire.InterfaceACLKey(a.Interfaces[0].Object)].(wire.InterfaceACL)
		return strings.Join(v.Output, " ")
	}
	second := awaiting("a", pod.TypeTap, "lan")
	second.ID = onPod("a", "").ID
	second.Netns = onPod("a", "").Netns
	r.set("a", listsFrom("x", "10.1.0.9/32"), "eth0")
	b := n.add(t, second)
	if got := output(); got != "weft:ingress:x" {
		t.Errorf("after an ADD the first attachment has %q", got)
	}
	r.set("a", listsFrom("y", "10.1.0.8/32"), "eth0")
	if _, err := n.loop.Do(t.Context(), addressed(b, "10.9.0.2/24", "10.9.0.1")); err != nil {
		t.Fatal(err)
	}
	if got := output(); got != "weft:ingress:y" {
		t.Errorf("after the addresses of the second attachment the first one has %q", got)
	}
}

// A second attachment of a pod is added after a restart of the agent, before it knows the cluster: the pod keeps the
// connections of the first.
func TestNewAttachmentLeavesTheOthersOfItsPodWhileTheClusterIsNotKnown(t *testing.T) {
	for name, lists := range map[string]policy.Lists{"with policies": listsFrom("x", "10.1.0.9/32"), "open": {}} {
		t.Run(name, func(t *testing.T) {
			r := newRuler()
			n := policedNode(t, r).run(t)
			n.set(t, append(networksOf(n), lan(false))...)
			if lists != (policy.Lists{}) {
				r.set("a", lists, "eth0")
			}
			a := n.add(t, onPod("a", ""))
			aclsOf := func(n *node, a *pod.Attachment) string {
				v, _ := n.committer.Values()[wire.InterfaceACLKey(a.Interfaces[0].Object)].(wire.InterfaceACL)
				return strings.Join(append(v.Input, v.Output...), " ")
			}
			before := aclsOf(n, a)
			r.isAway = true
			again := n.restarted(t)
			second := awaiting("a", pod.TypeTap, "lan")
			second.ID = onPod("a", "").ID
			second.Netns = onPod("a", "").Netns
			b := again.add(t, second)
			if got := aclsOf(again, a); got != before {
				t.Errorf("the first attachment has %q, and had %q", got, before)
			}
			if aclsOf(again, b) == "" {
				t.Error("the second attachment is open")
			}
			again.delete(t, second)
			if got := aclsOf(again, a); got != before {
				t.Errorf("after the DEL of the second attachment the first has %q, and had %q", got, before)
			}
			b = again.add(t, second)
			r.isAway = false
			r.set("a", lists, "eth0")
			again.changePolicies(t)
			if got := aclsOf(again, b); aclsOf(again, a) != before || got != "" {
				t.Errorf("when the cluster is known the second attachment has %q", got)
			}
		})
	}
}

// The next sandbox of a pod has an interface of the same name. It is closed until the cluster is known: it may be of
// another pod of that name.
func TestNewAttachmentWithTheNameOfAnInterfaceIsClosedWhileTheClusterIsNotKnown(t *testing.T) {
	r := newRuler()
	n := policedNode(t, r).run(t)
	r.set("a", listsFrom("x", "10.1.0.9/32"), "eth0")
	n.add(t, onPod("a", ""))
	r.isAway = true
	again := n.restarted(t)
	next := onPod("a", "")
	next.Key.ContainerID = "younger"
	next.Netns.Inode++
	a := again.add(t, next)
	if again.Pods.Lists(a.Pod)["eth0"][policy.Ingress].Decide(netip.MustParseAddr("10.1.0.9"), policy.TCP,
		80).Action != policy.Deny {
		t.Error("the new sandbox has the rules of the earlier one")
	}
}
