package attach

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// Buckets of the rules of pods: lists by name, and their names by pod. They hold while the API server cannot be reached.
const (
	RulesBucket = "rules"
	ListsBucket = "lists"
)

// Rules are the rules of policies for the interfaces of a pod, by name. Interfaces that no policy restricts have none.
type Rules = map[string]policy.Lists

// Policies has the rules of this node's pods. Handlers call its methods: a call must not wait.
type Policies interface {
	// Admit adds an attachment, or replaces it, and returns the rules of its pod, of all attachments; or of this one only, which are not the
	// whole, before the cluster is known. node are the addresses by which this node reaches its pods.
	Admit(a *pod.Attachment, node []netip.Prefix) (rules Rules, isWhole bool)
	// Dismiss removes an attachment. An unknown one is no error.
	Dismiss(a *pod.Attachment)
	// Changed returns the rules of the pods whose rules may have changed since the last call, by "namespace/name".
	Changed(node []netip.Prefix) map[string]Rules
}

// ChangePolicies applies the current rules of all pods.
type ChangePolicies struct {
	pod.Partial

	Pods int // set by the handler: the pods with other rules
}

// String returns the name of the event in logs and records.
func (e *ChangePolicies) String() string { return "change policies" }

// Key makes a newer event replace a queued one.
func (e *ChangePolicies) Key() string { return "policies" }

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

// RestoreRules takes over the rules of an earlier run. An interface whose lists are missing is closed until the cluster is known.
func (ps *Pods) RestoreRules(saved []SavedRules, lists []SavedList) {
	byName := make(map[string]*policy.List, len(lists))
	for _, l := range lists {
		byName[l.Name] = &policy.List{Name: l.Name, Rules: l.Rules}
	}
	all := maps.Clone(*ps.rules.Load())
	for _, s := range saved {
		rules := make(Rules, len(s.Interfaces))
		for name, of := range s.Interfaces {
			both := policy.Lists{byName[of[0]], byName[of[1]]}
			if both[0] == nil || both[1] == nil {
				ps.networks.Config.Log.Error("rules of a pod are incomplete in the state file: denying everything until the cluster is known", "pod", s.Pod, "interface", name)
				both = policy.Closed(ps.nodePrefixes())
			}
			rules[name] = both
		}
		all[s.Pod] = rules
	}
	ps.rules.Store(&all)
}

// admitRestored gives Policies the attachments of an earlier run. Their rules are those of that run until Policies knows the cluster.
func (ps *Pods) admitRestored(attachments []*pod.Attachment) {
	if ps.config.Policies == nil {
		return
	}
	for _, a := range attachments {
		if !a.Pod.IsZero() {
			ps.config.Policies.Admit(ps.wired[a.Key].Attachment, ps.nodePrefixes())
		}
	}
}

// CloseUnknown closes the interfaces of restored pods without rules until the cluster is known. The state file that had their rules was
// lost.
func (ps *Pods) CloseUnknown() {
	if ps.config.Policies == nil {
		return
	}
	all := maps.Clone(*ps.rules.Load())
	closed := policy.Closed(ps.nodePrefixes())
	for _, c := range ps.inOrder() {
		if c.Pod.IsZero() || all[c.Pod.String()] != nil {
			continue
		}
		rules := make(Rules, len(c.Interfaces))
		for _, i := range c.Interfaces {
			rules[i.Name] = closed
		}
		all[c.Pod.String()] = rules
	}
	ps.rules.Store(&all)
}

// Lists returns the rules of a pod as applied last. It may be called from any goroutine; the caller must not change them.
func (ps *Pods) Lists(id pod.ID) Rules { return ps.rulesOf(id) }

// rulesOf returns the rules of a pod. Containers outside Kubernetes have none.
func (ps *Pods) rulesOf(id pod.ID) Rules {
	if id.IsZero() {
		return nil
	}
	return (*ps.rules.Load())[id.String()]
}

// nodePrefixes lists the addresses by which this node reaches its pods.
func (ps *Pods) nodePrefixes() []netip.Prefix {
	var list []netip.Prefix
	for _, p := range ps.networks.Pools().All {
		if a := ps.networks.NodeIn(p); a.IsValid() {
			list = append(list, desired.Single(a))
		}
	}
	for _, f := range []wire.Family{wire.IP4, wire.IP6} {
		if a := ps.networks.NodeAddress(f); a.IsValid() {
			list = append(list, desired.Single(a))
		}
	}
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}

// admit gives the rules to a pod before its interfaces are connected. Its other attachments get them too: Policies does not return these
// rules as changed any more.
func (ps *Pods) admit(a *pod.Attachment, t *eventloop.Txn) {
	if ps.config.Policies == nil || a.Pod.IsZero() {
		return
	}
	rules, isWhole := ps.config.Policies.Admit(a, ps.nodePrefixes())
	if !isWhole {
		rules = ps.withOthers(a, rules)
	}
	before := ps.wired[a.Key]
	t.OnRollback(func() error {
		if before != nil {
			ps.config.Policies.Admit(before.Attachment, ps.nodePrefixes())
		} else {
			ps.config.Policies.Dismiss(a)
		}
		return nil
	})
	replace := ps.replaceOthers(a, t)
	ps.setRules(map[string]Rules{a.Pod.String(): rules}, t)
	replace()
}

// withOthers adds the present rules of the other attachments of a pod to those of one: pods keep their connections while the cluster is not
// known.
func (ps *Pods) withOthers(a *pod.Attachment, rules Rules) Rules {
	all := maps.Clone(rules)
	present := ps.rulesOf(a.Pod)
	for _, c := range ps.wired {
		if c.Pod.String() != a.Pod.String() || c.Key == a.Key {
			continue
		}
		for _, i := range c.Interfaces {
			_, isOwn := rules[i.Name]
			if lists, has := present[i.Name]; has && !isOwn {
				all[i.Name] = lists
			}
		}
	}
	return all
}

// replaceOthers returns a function that adds the difference between the values of then and now of the other attachments of a pod.
func (ps *Pods) replaceOthers(a *pod.Attachment, t *eventloop.Txn) func() {
	var others []*connection // few, so only they are sorted
	for _, c := range ps.wired {
		if c.Pod.String() == a.Pod.String() && c.Key != a.Key && !c.displaced {
			others = append(others, c)
		}
	}
	slices.SortFunc(others, byKey)
	values := func() desired.Values {
		var v desired.Values
		for _, c := range others {
			v = append(v, ps.podValues(c.Attachment)...)
		}
		return v
	}
	before := values()
	return func() { desired.Replace(t, before, values()) }
}

// dismiss forgets the rules of a deleted attachment, unless its pod has others.
func (ps *Pods) dismiss(c *connection, t *eventloop.Txn) {
	if ps.config.Policies == nil || c.Pod.IsZero() {
		return
	}
	t.OnCommit(func() { ps.config.Policies.Dismiss(c.Attachment) })
	for _, other := range ps.wired {
		if other.Pod.String() == c.Pod.String() {
			return
		}
	}
	ps.setRules(map[string]Rules{c.Pod.String(): nil}, t)
}

// ChangePolicies applies the rules that changed.
func (ps *Pods) ChangePolicies(ev *ChangePolicies, t *eventloop.Txn) {
	if ps.config.Policies == nil {
		return
	}
	changed := ps.config.Policies.Changed(ps.nodePrefixes())
	maps.DeleteFunc(changed, func(name string, rules Rules) bool {
		return !ps.isWired(name) || sameRules((*ps.rules.Load())[name], rules)
	})
	ev.Pods = len(changed)
	values := func() desired.Values {
		var v desired.Values
		for _, c := range ps.inOrder() {
			if _, is := changed[c.Pod.String()]; is && !c.displaced {
				v = append(v, ps.podValues(c.Attachment)...)
			}
		}
		return v
	}
	defer ps.replaceCommon(t)()
	before := values()
	ps.setRules(changed, t)
	desired.Replace(t, before, values())
}

func (ps *Pods) isWired(name string) bool {
	for _, c := range ps.wired {
		if c.Pod.String() == name {
			return true
		}
	}
	return false
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

// setRules replaces the rules of pods, durably. A pod with nil is removed.
func (ps *Pods) setRules(changed map[string]Rules, t *eventloop.Txn) {
	before := ps.rules.Load()
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
	ps.rules.Store(&after)
	t.OnRollback(func() error { ps.rules.Store(before); return nil })
	was, is := listsIn(*before), listsIn(after)
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

// aclValues lists the ACLs of the rules of all attachments. Several interfaces share one.
func (ps *Pods) aclValues() desired.Values {
	type filter struct {
		lists     [2]string
		isGuarded bool
	}
	var v desired.Values
	done, taken := make(map[filter]bool), make(map[string]bool)
	for _, c := range ps.inOrder() {
		for _, i := range c.Interfaces {
			lists := ps.rulesOf(c.Pod)[i.Name]
			custom := ps.networks.Custom(i.Network)
			f := filter{namesIn(lists), custom != nil && custom.IsGuarded()}
			if c.displaced || done[f] || i.Memif != nil && i.Memif.IsDirect() {
				continue
			}
			done[f] = true
			for _, acl := range ps.acls.Of(lists, f.isGuarded) {
				if !taken[acl.Label] {
					taken[acl.Label] = true
					v.Add(wire.ACLKey(acl.Label), acl)
				}
			}
		}
	}
	ps.acls.Forget()
	return v
}

// replaceCommon returns a function that adds the difference between the values of then and now that belong to several attachments.
func (ps *Pods) replaceCommon(t *eventloop.Txn) func() {
	replaceACLs, splices := ps.replaceACLs(t), ps.spliceValues()
	return func() {
		replaceACLs()
		desired.Replace(t, splices, ps.spliceValues())
	}
}

// replaceACLs returns a function that adds the difference between the ACLs of then and now to the transaction. The name of an ACL says what
// it contains, so only names are compared.
func (ps *Pods) replaceACLs(t *eventloop.Txn) func() {
	if ps.config.Policies == nil {
		return func() {}
	}
	before := ps.aclValues()
	return func() {
		after := ps.aclValues()
		was, is := before.Keys(), after.Keys()
		for _, key := range was {
			if !slices.Contains(is, key) {
				t.Delete(key)
			}
		}
		for _, s := range after {
			if !slices.Contains(was, s.Key) {
				t.Put(s.Key, s.Value)
			}
		}
	}
}
