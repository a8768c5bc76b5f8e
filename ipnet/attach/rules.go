package attach

import (
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
)

// Buckets of the rules of pods: lists by name, and their names by pod. They hold while the API server cannot be
// reached.
const (
	RulesBucket = "rules"
	ListsBucket = "lists"
)

// Rules are the rules of policies for the interfaces of a pod, by name. An interface that no policy restricts is not
// in it.
type Rules = map[string]policy.Lists

// RuleSource has the rules of this node's pods. Handlers call its methods: a call must not wait.
type RuleSource interface {
	// Admit adds an attachment, or replaces it, and returns the rules of its pod, of all attachments; or of this one
	// only, which are not the whole, before the cluster is known. node are the addresses by which this node reaches its
	// pods.
	Admit(a *pod.Attachment, node []netip.Prefix) (rules Rules, isWhole bool)
	// Dismiss removes an attachment. An unknown one is no error.
	Dismiss(a *pod.Attachment)
	// Changed returns the rules of the pods that may have other rules since the last call, by "namespace/name".
	Changed(node []netip.Prefix) map[string]Rules
}

// SavedList is a list of rules in the state file.
type SavedList struct {
	Name  string        `json:"name"`
	Rules []policy.Rule `json:"rules"`
}

// SavedRules are the names of the lists of a pod's interfaces in the state file.
type SavedRules struct {
	Pod        string               `json:"pod"` // namespace/name
	Interfaces map[string][2]string `json:"interfaces"`
}

// podRules are the rules of network policies that are applied to the pods of this node. They are durable. The map is
// replaced, never changed, so any goroutine may read it.
type podRules struct {
	policies    RuleSource // nil: the node has no policies
	networks    *networks.Networks
	connections connections
	byPod       atomic.Pointer[map[string]Rules]
}

func newPodRules(policies RuleSource, networks *networks.Networks, connections connections) *podRules {
	r := &podRules{policies: policies, networks: networks, connections: connections}
	r.byPod.Store(&map[string]Rules{})
	return r
}

// of returns the rules of a pod. Containers outside Kubernetes have no rules.
func (r *podRules) of(id pod.ID) Rules {
	if id.IsZero() {
		return nil
	}
	return (*r.byPod.Load())[id.String()]
}

// canRestrict reports whether policies can restrict a pod.
func (r *podRules) canRestrict(id pod.ID) bool { return r.policies != nil && !id.IsZero() }

// restore takes over the rules of an earlier run. An interface with missing lists is closed until the cluster is known.
func (r *podRules) restore(saved []SavedRules, lists []SavedList) {
	byName := make(map[string]*policy.List, len(lists))
	for _, l := range lists {
		byName[l.Name] = &policy.List{Name: l.Name, Rules: l.Rules}
	}
	all := maps.Clone(*r.byPod.Load())
	for _, s := range saved {
		rules := make(Rules, len(s.Interfaces))
		for name, of := range s.Interfaces {
			both := policy.Lists{byName[of[0]], byName[of[1]]}
			if both[0] == nil || both[1] == nil {
				r.networks.Config.Log.Error(
					"rules of a pod are incomplete in the state file: denying everything until the cluster is known",
					"pod", s.Pod, "interface", name)
				both = policy.Closed(r.nodePrefixes())
			}
			rules[name] = both
		}
		all[s.Pod] = rules
	}
	r.byPod.Store(&all)
}

// admitRestored gives Policies the attachments of an earlier run. Their rules are the restored ones until Policies
// knows the cluster.
func (r *podRules) admitRestored(attachments []*pod.Attachment) {
	for _, a := range attachments {
		r.admitAgain(r.connections[a.Key].Attachment)
	}
}

// admitAgain gives Policies an attachment after a change of it was undone.
func (r *podRules) admitAgain(a *pod.Attachment) {
	if r.canRestrict(a.Pod) {
		r.policies.Admit(a, r.nodePrefixes())
	}
}

// closeUnknown closes the interfaces of restored pods without rules until the cluster is known. The state file that had
// their rules was lost.
func (r *podRules) closeUnknown() {
	if r.policies == nil {
		return
	}
	all := maps.Clone(*r.byPod.Load())
	closed := policy.Closed(r.nodePrefixes())
	for _, c := range r.connections.inOrder() {
		if c.Pod.IsZero() || all[c.Pod.String()] != nil {
			continue
		}
		rules := make(Rules, len(c.Interfaces))
		for _, i := range c.Interfaces {
			rules[i.Name] = closed
		}
		all[c.Pod.String()] = rules
	}
	r.byPod.Store(&all)
}

// nodePrefixes lists the addresses by which this node reaches its pods.
func (r *podRules) nodePrefixes() []netip.Prefix {
	var list []netip.Prefix
	for _, p := range r.networks.Pools().All {
		if a := r.networks.NodeIn(p); a.IsValid() {
			list = append(list, netaddr.Single(a))
		}
	}
	for _, f := range []netaddr.Family{netaddr.IP4, netaddr.IP6} {
		if a := r.networks.NodeAddress(f); a.IsValid() {
			list = append(list, netaddr.Single(a))
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// admit sets the rules of a pod that gets or changes an attachment.
func (r *podRules) admit(a *pod.Attachment, t *eventloop.Txn) {
	rules, isWhole := r.policies.Admit(a, r.nodePrefixes())
	if !isWhole {
		rules = r.withOthers(a, rules)
	}
	before := r.connections[a.Key]
	t.OnRollback(func() error {
		if before != nil {
			r.policies.Admit(before.Attachment, r.nodePrefixes())
		} else {
			r.policies.Dismiss(a)
		}
		return nil
	})
	r.set(map[string]Rules{a.Pod.String(): rules}, t)
}

// withOthers adds the present rules of the other attachments of a pod to the rules of one: pods keep their connections
// while the cluster is not known.
func (r *podRules) withOthers(a *pod.Attachment, rules Rules) Rules {
	all := maps.Clone(rules)
	present := r.of(a.Pod)
	for _, c := range r.connections.othersOf(a.Pod, a.Key) {
		for _, i := range c.Interfaces {
			_, isOwn := rules[i.Name]
			if lists, has := present[i.Name]; has && !isOwn {
				all[i.Name] = lists
			}
		}
	}
	return all
}

// forget removes the rules of a deleted attachment, unless its pod has other attachments.
func (r *podRules) forget(a *pod.Attachment, t *eventloop.Txn) {
	if !r.canRestrict(a.Pod) {
		return
	}
	t.OnCommit(func() { r.policies.Dismiss(a) })
	if !r.connections.hasPod(a.Pod.String()) {
		r.set(map[string]Rules{a.Pod.String(): nil}, t)
	}
}

// changed returns the rules of connected pods that differ from the applied ones, by pod.
func (r *podRules) changed() map[string]Rules {
	changed := r.policies.Changed(r.nodePrefixes())
	maps.DeleteFunc(changed, func(name string, rules Rules) bool {
		return !r.connections.hasPod(name) || sameRules((*r.byPod.Load())[name], rules)
	})
	return changed
}

// sameRules compares by name: lists that were restored are other pointers.
func sameRules(a, b Rules) bool {
	return maps.EqualFunc(a, b, func(x, y policy.Lists) bool { return namesIn(x) == namesIn(y) })
}

func namesIn(l policy.Lists) (names [2]string) {
	for d := range l {
		if l[d] != nil {
			names[d] = l[d].Name
		}
	}
	return names
}

// set replaces the rules of pods, durably. A pod with nil is removed.
func (r *podRules) set(changed map[string]Rules, t *eventloop.Txn) {
	before := r.byPod.Load()
	after := maps.Clone(*before)
	for name, rules := range changed {
		if len(rules) == 0 {
			delete(after, name)
			t.Save(RulesBucket, name, nil)
			continue
		}
		after[name] = rules
		saved := SavedRules{Pod: name, Interfaces: make(map[string][2]string, len(rules))}
		for i, l := range rules {
			saved.Interfaces[i] = namesIn(l)
		}
		t.Save(RulesBucket, name, saved)
	}
	r.byPod.Store(&after)
	t.OnRollback(func() error { r.byPod.Store(before); return nil })
	was := listsIn(*before)
	is := listsIn(after)
	for name := range was {
		if is[name] == nil {
			t.Save(ListsBucket, name, nil)
		}
	}
	for name, l := range is {
		if was[name] == nil {
			t.Save(ListsBucket, name, SavedList{Name: name, Rules: l.Rules})
		}
	}
}

func listsIn(all map[string]Rules) map[string]*policy.List {
	lists := make(map[string]*policy.List)
	for _, rules := range all {
		for _, both := range rules {
			for _, l := range both {
				if l != nil {
					lists[l.Name] = l
				}
			}
		}
	}
	return lists
}
