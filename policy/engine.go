package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// Config has the rules that no policy overrides. The zero value has no rules.
type Config struct {
	// Nodes are addresses of this node. Connections from them to the pods of the node are permitted: kubelet's probes,
	// and everything else that the node itself sends.
	Nodes []netip.Prefix
	// Denied are destinations that pods may not contact by their main interfaces, whatever policies say.
	Denied []Denied
	Limits Limits // the zero value is DefaultLimits
}

// Denied is a destination that pods may not contact.
type Denied struct {
	Name     string // in explanations
	Prefix   netip.Prefix
	Protocol uint8 // AnyProtocol: all, and Ports is not used
	Ports    Range
}

// Engine compiles policies. It is not safe for concurrent use.
type Engine struct {
	config     Config
	limits     Limits
	denied     []Rule // of config
	clients    ClientMap
	namespaces map[string]*namespaceState
	policies   map[Ref]*policyState
	groups     map[string]*group // by the key of their selector
	tallies    tallies           // of groups
	kept       fragments
	selectors  *selectors
	nodes      map[string]nodeState
	services   services
	addresses  map[netip.Addr]int // number of pods that have it

	dirty map[*podState]struct{} // local pods with interfaces that may need other rules
	turns map[string]uint64      // the last turn of namespaces that have dirty pods
	turn  uint64                 // of the pod compiled last
	// local pods that were deleted since Compile, also if there is another one of that name
	gone  map[ID]struct{}
	lists map[string]*List // in use, by name
	own   map[string]int   // rules of the policies of a namespace in these lists

	halved      halved                      // limits
	demands     map[demandKey]*sharedDemand // of Services
	isUndivided bool                        // the lists have changed, and limits may have to be halved

	work Work

	wide wideCounts
}

// Work counts what the engine did. It is for tests and metrics.
type Work struct {
	Matches    int // comparisons of a pod with a selector
	Fragments  int // policies with rules that were resolved to addresses
	Interfaces int // interfaces with compiled lists
	Ports      int // named ports of pods that were compared with one of a policy
	Services   int // Services with decided endpoints
}

type namespaceState struct {
	labels labels.Set
	pods   map[string]*podState
}

type nodeState struct {
	labels    labels.Set
	addresses []netip.Prefix
}

type podState struct {
	Pod
	groups map[*group]struct{}
	lists  map[string]Lists // by interface, as compiled last
	excess []Excess         // likewise
	// interfaces for which the namespace has no rules left on the node, as compiled last
	starved  map[string]lacking
	demanded []demandKey            // keys of demands of its lists, as compiled last
	named    map[string][]NamedPort // the ports by name; nil: they are few
	span     int                    // the largest number of ports with the same name, at least 1

	compiled bool // at least once
}

type policyState struct {
	Policy
	subject   *group
	peers     map[string]*group // by the key of their selector
	efforts   [2]*effort        // by direction; nil: not counted yet
	selectors int               // of peers, see hasTooManySelectors
	wide      []string          // the keys of those that select pods of several namespaces
	isCrowded bool              // its namespace has too many of these
	nodes     bool              // has peers by the labels of nodes
	clients   bool              // permits or denies connections from addresses
}

// NewEngine returns an engine without pods and policies.
func NewEngine(c Config) *Engine {
	e := &Engine{
		namespaces: make(map[string]*namespaceState),
		policies:   make(map[Ref]*policyState),
		groups:     make(map[string]*group),
		selectors:  newSelectors(),
		nodes:      make(map[string]nodeState),
		dirty:      make(map[*podState]struct{}),
		turns:      make(map[string]uint64),
		gone:       make(map[ID]struct{}),
		lists:      make(map[string]*List),
		own:        make(map[string]int),
		demands:    make(map[demandKey]*sharedDemand),
		halved:     halved{services: make(map[string]uint)},
		wide: wideCounts{
			namespaces: make(map[string]*wideSelectors),
			unsettled:  make(map[string]struct{}),
		},
		services:  services{byName: make(map[string]*Service), external: make(map[netip.Addr]int)},
		addresses: make(map[netip.Addr]int),
		tallies:   make(tallies), kept: fragments{byPolicy: make(map[*policyState]map[fragmentKey]fragment)},
	}
	e.SetConfig(c)
	return e
}

// SetConfig replaces the rules that no policy overrides.
func (e *Engine) SetConfig(c Config) {
	e.config = c
	e.limits = cmp.Or(c.Limits, DefaultLimits)
	e.isUndivided = true
	e.services.plan = nil
	e.denied = boundFixed(c.Denied, e.limits.Fixed)
	for _, ns := range e.namespaces {
		for _, p := range ns.pods {
			e.touch(p)
		}
	}
}

// SetClients replaces the client addresses of pods.
func (e *Engine) SetClients(m ClientMap) {
	was := e.clients
	if was.Equal(m) {
		return
	}
	e.clients = m
	stale := make(map[*policyState]struct{}) // many pods are peers of one policy
	for _, p := range e.policies {
		if p.clients {
			stale[p] = struct{}{}
		}
	}
	for _, ns := range e.namespaces {
		for _, p := range ns.pods {
			if slices.ContainsFunc(p.Interfaces, func(i Interface) bool {
				return !slices.Equal(was.sourcesOf(&i), m.sourcesOf(&i))
			}) {
				for g := range p.groups {
					maps.Copy(stale, g.peers)
				}
			}
		}
	}
	for p := range stale {
		e.invalidate(p)
	}
}

// namespace returns a namespace, which may be unknown yet: then it has no labels.
func (e *Engine) namespace(name string) *namespaceState {
	ns := e.namespaces[name]
	if ns == nil {
		ns = &namespaceState{pods: make(map[string]*podState)}
		e.namespaces[name] = ns
	}
	return ns
}

// SetNamespace adds a namespace or changes its labels.
func (e *Engine) SetNamespace(name string, set map[string]string) {
	ns := e.namespace(name)
	if ns.labels != nil && maps.Equal(ns.labels, set) {
		return
	}
	isFirst := ns.labels == nil
	if ns.labels = maps.Clone(set); ns.labels == nil {
		ns.labels = labels.Set{}
	}
	for _, p := range ns.pods {
		if isFirst { // rules for a namespace without labels may permit more
			p.compiled = false
			e.touch(p)
		}
		e.regroup(p)
	}
}

// DeleteNamespace removes a namespace. Pods that are still there are in a namespace without labels.
func (e *Engine) DeleteNamespace(name string) {
	ns, known := e.namespaces[name]
	if !known {
		return
	}
	ns.labels = nil
	for _, p := range ns.pods {
		e.regroup(p)
	}
	e.dropEmpty(name)
}

func (e *Engine) dropEmpty(name string) {
	if ns := e.namespaces[name]; ns != nil && ns.labels == nil && len(ns.pods) == 0 {
		delete(e.namespaces, name)
	}
}

// SetNode adds a node or changes it. Policies select nodes as peers by their labels.
func (e *Engine) SetNode(name string, set map[string]string, addresses []netip.Prefix) {
	n := e.nodes[name]
	if _, known := e.nodes[name]; known && maps.Equal(n.labels, set) && slices.Equal(n.addresses, addresses) {
		return
	}
	e.nodes[name] = nodeState{maps.Clone(set), slices.Clone(addresses)}
	e.nodesChanged()
}

// DeleteNode removes a node.
func (e *Engine) DeleteNode(name string) {
	if _, known := e.nodes[name]; known {
		delete(e.nodes, name)
		e.nodesChanged()
	}
}

func (e *Engine) nodesChanged() {
	for _, p := range e.policies {
		if p.nodes {
			e.invalidate(p)
		}
	}
}

// SetPod adds a pod or changes it.
func (e *Engine) SetPod(p Pod) {
	ns := e.namespace(p.Namespace)
	was := ns.pods[p.Name]
	if was == nil {
		was = &podState{groups: make(map[*group]struct{}), lists: make(map[string]Lists)}
		ns.pods[p.Name] = was
	} else if equalPods(&was.Pod, &p) {
		return
	}
	isPeer := !equalEnds(&was.Pod, &p) // its peers see other addresses or ports
	if isPeer {
		e.countAddresses(&was.Pod, -1)
		e.countAddresses(&p, 1)
	}
	was.Pod = p
	was.setPorts(e.tallies)
	if isPeer {
		e.invalidatePeers(was)
	}
	e.regroup(was)
	e.touch(was)
}

func equalPods(a, b *Pod) bool {
	return a.Local == b.Local && maps.Equal(a.Labels, b.Labels) && equalEnds(a, b)
}

// equalEnds reports whether peers reach both pods alike.
func equalEnds(a, b *Pod) bool {
	return slices.Equal(a.Ports, b.Ports) && slices.EqualFunc(a.Interfaces, b.Interfaces, func(x, y Interface) bool {
		return x.Name == y.Name && x.Main == y.Main && slices.Equal(x.Networks, y.Networks) &&
			slices.Equal(x.Addresses, y.Addresses) &&
			slices.Equal(x.Claimed, y.Claimed)
	})
}

// DeletePod removes a pod. An unknown pod is no error.
func (e *Engine) DeletePod(id ID) {
	p := e.pod(id)
	if p == nil {
		return
	}
	e.invalidatePeers(p)
	e.countAddresses(&p.Pod, -1)
	for g := range p.groups {
		delete(g.members, p)
		e.tallies.add(g, p, -p.span)
	}
	for _, lists := range p.lists {
		e.release(lists)
	}
	e.undemand(p.demanded)
	e.unstarve(p)
	delete(e.namespaces[id.Namespace].pods, id.Name)
	e.dropEmpty(id.Namespace)
	delete(e.dirty, p)
	if p.Local || len(p.lists) > 0 {
		e.gone[id] = struct{}{}
	}
}

func (e *Engine) pod(id ID) *podState {
	if ns := e.namespaces[id.Namespace]; ns != nil {
		return ns.pods[id.Name]
	}
	return nil
}

// regroup moves a pod to the groups that select it now.
func (e *Engine) regroup(p *podState) {
	now := make(map[*group]struct{})
	set := e.namespaces[p.Namespace].labels
	e.selectors.candidates(p, set, func(g *group) {
		if _, done := now[g]; done {
			return
		}
		e.work.Matches++
		if g.matches(p, set) {
			now[g] = struct{}{}
		}
	})
	for g := range p.groups {
		if _, still := now[g]; !still {
			e.leave(p, g)
		}
	}
	for g := range now {
		if _, was := p.groups[g]; !was {
			e.join(p, g)
		}
	}
}

func (e *Engine) join(p *podState, g *group) {
	e.enter(p, g)
	e.groupChanged(p, g)
}

// enter makes a pod a member of a group.
func (e *Engine) enter(p *podState, g *group) {
	g.members[p] = struct{}{}
	p.groups[g] = struct{}{}
	e.tallies.add(g, p, p.span)
}

func (e *Engine) leave(p *podState, g *group) {
	delete(g.members, p)
	delete(p.groups, g)
	e.tallies.add(g, p, -p.span)
	e.groupChanged(p, g)
}

// groupChanged marks what depends on the membership of a pod in a group.
func (e *Engine) groupChanged(p *podState, g *group) {
	if len(g.subjects) > 0 {
		e.touch(p)
	}
	for policy := range g.peers {
		e.invalidate(policy)
	}
}

// invalidatePeers marks the policies of which a pod is a peer.
func (e *Engine) invalidatePeers(p *podState) {
	for g := range p.groups {
		for policy := range g.peers {
			e.invalidate(policy)
		}
	}
}

// invalidate drops the addresses in the rules of a policy, and marks its local subjects.
func (e *Engine) invalidate(p *policyState) {
	e.kept.drop(p)
	p.efforts = [2]*effort{}
	for member := range p.subject.members {
		e.touch(member)
	}
}

// touch marks a pod: its rules may differ.
func (e *Engine) touch(p *podState) {
	if p.Local || len(p.lists) > 0 {
		e.dirty[p] = struct{}{}
	}
}

// SetPolicy adds a policy or replaces it.
func (e *Engine) SetPolicy(p Policy) {
	was := e.policies[p.Ref]
	is := newPolicyState(p)
	is.Networks = slices.Sorted(slices.Values(p.Networks))
	is.subject = e.use(p.Subject)
	is.subject.subjects[is] = struct{}{}
	e.policies[p.Ref] = is
	if was != nil {
		e.wide.remove(was)
	}
	e.wide.add(is, e.limits.Selectors)
	if !is.hasTooManySelectors() {
		e.usePeers(is)
	}
	e.invalidate(is)
	if was != nil {
		e.remove(was)
	}
}

// DeletePolicy removes a policy. An unknown policy is no error.
func (e *Engine) DeletePolicy(id Ref) {
	if p := e.policies[id]; p != nil {
		delete(e.policies, id)
		e.wide.remove(p)
		e.remove(p)
	}
}

func (e *Engine) remove(p *policyState) {
	e.invalidate(p)
	delete(p.subject.subjects, p)
	e.disuse(p.subject)
	e.disusePeers(p)
}

// use returns the group of a selector.
func (e *Engine) use(s Selector) *group {
	if g := e.groups[s.key]; g != nil {
		return g
	}
	g := &group{
		Selector: s,
		members:  make(map[*podState]struct{}),
		subjects: make(map[*policyState]struct{}),
		peers:    make(map[*policyState]struct{}),
	}
	e.groups[s.key] = g
	e.selectors.add(g)
	for name, ns := range e.namespaces {
		if s.Namespace != "" && s.Namespace != name {
			continue
		}
		for _, p := range ns.pods {
			e.work.Matches++
			if g.matches(p, ns.labels) {
				e.enter(p, g)
			}
		}
	}
	return g
}

func (e *Engine) disuse(g *group) {
	if !g.unused() || e.groups[g.key] != g {
		return
	}
	delete(e.groups, g.key)
	delete(e.tallies, g)
	e.selectors.remove(g)
	for p := range g.members {
		delete(p.groups, g)
	}
}
