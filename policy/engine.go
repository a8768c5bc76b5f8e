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
	compiler
	policies policyTable
	backlog  backlog
}

// Work counts what the engine did. It is for tests and metrics.
type Work struct {
	Matches    int // comparisons of a pod with a selector
	Fragments  int // policies with rules that were resolved to addresses
	Interfaces int // interfaces with compiled lists
	Ports      int // named ports of pods that were compared with one of a policy
	Services   int // Services with decided endpoints
}

// NewEngine returns an engine without pods and policies.
func NewEngine(c Config) *Engine {
	e := &Engine{compiler: compiler{
		cluster:  newCluster(),
		services: services{byName: make(map[string]*Service), external: make(map[netip.Addr]int)},
		kept:     fragments{byPolicy: make(map[*policyState]map[fragmentKey]fragment)},
	}}
	e.backlog = newBacklog(&e.kept)
	e.membership = newMembership(&e.cluster, &e.backlog, &e.work)
	e.policies = newPolicyTable(&e.membership, &e.limits)
	e.budget = newBudget(&e.cluster, &e.backlog, &e.limits)
	e.SetConfig(c)
	return e
}

// SetConfig replaces the rules that no policy overrides.
func (e *Engine) SetConfig(c Config) {
	e.config = c
	e.limits = cmp.Or(c.Limits, DefaultLimits)
	e.budget.isUndivided = true
	e.services.plan = nil
	e.denied = boundFixed(c.Denied, e.limits.Fixed)
	for p := range e.cluster.pods() {
		e.backlog.touch(p)
	}
}

// SetClients replaces the client addresses of pods.
func (e *Engine) SetClients(m ClientMap) {
	was := e.cluster.clients
	if was.Equal(m) {
		return
	}
	e.cluster.clients = m
	stale := make(map[*policyState]struct{}) // many pods are peers of one policy
	for _, p := range e.policies.byRef {
		if p.clients {
			stale[p] = struct{}{}
		}
	}
	for p := range e.cluster.pods() {
		if slices.ContainsFunc(p.Interfaces, func(i Interface) bool {
			return !slices.Equal(was.sourcesOf(&i), m.sourcesOf(&i))
		}) {
			for g := range p.groups {
				maps.Copy(stale, g.peers)
			}
		}
	}
	for p := range stale {
		e.backlog.invalidate(p)
	}
}

// SetNamespace adds a namespace or changes its labels.
func (e *Engine) SetNamespace(name string, set map[string]string) {
	ns := e.cluster.namespace(name)
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
			e.backlog.touch(p)
		}
		e.membership.regroup(p)
	}
}

// DeleteNamespace removes a namespace. Pods that are still there are in a namespace without labels.
func (e *Engine) DeleteNamespace(name string) {
	ns, known := e.cluster.namespaces[name]
	if !known {
		return
	}
	ns.labels = nil
	for _, p := range ns.pods {
		e.membership.regroup(p)
	}
	e.cluster.dropEmpty(name)
}

// SetNode adds a node or changes it. Policies select nodes as peers by their labels.
func (e *Engine) SetNode(name string, set map[string]string, addresses []netip.Prefix) {
	n := e.cluster.nodes[name]
	if _, known := e.cluster.nodes[name]; known && maps.Equal(n.labels, set) && slices.Equal(n.addresses, addresses) {
		return
	}
	e.cluster.nodes[name] = nodeState{maps.Clone(set), slices.Clone(addresses)}
	e.policies.nodesChanged()
}

// DeleteNode removes a node.
func (e *Engine) DeleteNode(name string) {
	if _, known := e.cluster.nodes[name]; known {
		delete(e.cluster.nodes, name)
		e.policies.nodesChanged()
	}
}

// SetPod adds a pod or changes it.
func (e *Engine) SetPod(p Pod) {
	ns := e.cluster.namespace(p.Namespace)
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
	was.setPorts(e.membership.tallies)
	if isPeer {
		e.backlog.invalidatePeers(was)
	}
	e.membership.regroup(was)
	e.backlog.touch(was)
}

// DeletePod removes a pod. An unknown pod is no error.
func (e *Engine) DeletePod(id ID) {
	p := e.cluster.pod(id)
	if p == nil {
		return
	}
	e.backlog.invalidatePeers(p)
	e.countAddresses(&p.Pod, -1)
	e.membership.remove(p)
	for _, lists := range p.lists {
		e.budget.release(lists)
	}
	e.budget.undemand(p.demanded)
	e.budget.unstarve(p)
	delete(e.cluster.namespaces[id.Namespace].pods, id.Name)
	e.cluster.dropEmpty(id.Namespace)
	e.backlog.remove(p)
}

// SetPolicy adds a policy or replaces it.
func (e *Engine) SetPolicy(p Policy) { e.policies.set(p) }

// DeletePolicy removes a policy. An unknown policy is no error.
func (e *Engine) DeletePolicy(id Ref) { e.policies.remove(id) }

// SetService adds a Service or changes it.
func (e *Engine) SetService(s Service) {
	if e.services.set(s) {
		e.servicesChanged()
	}
}

// DeleteService removes a Service. An unknown one is no error.
func (e *Engine) DeleteService(name string) {
	if e.services.remove(name) {
		e.servicesChanged()
	}
}

// servicesChanged marks the pods with rules about Services: the lists of other pods permit everything.
func (e *Engine) servicesChanged() {
	e.services.plan = nil
	for p := range e.cluster.pods() {
		if len(p.lists) > 0 {
			e.backlog.touch(p)
		}
	}
}

// HasPodAt reports whether other pods reach a known pod by an address.
func (e *Engine) HasPodAt(a netip.Addr) bool { return e.cluster.addresses[a] > 0 }

// countAddresses adds the addresses by which other pods reach a pod to the addresses of all pods, or removes them if n
// is -1. If a Service has one of them, the rules of pods change.
func (e *Engine) countAddresses(p *Pod, n int) {
	for i := range p.Interfaces {
		if !p.Interfaces[i].Main && !slices.Contains(p.Interfaces[i].Networks, DefaultNetwork) {
			continue
		}
		for _, a := range p.Interfaces[i].Addresses {
			if e.cluster.addresses[a] += n; e.cluster.addresses[a] == 0 {
				delete(e.cluster.addresses, a)
			}
			if e.services.external[a] > 0 {
				e.servicesChanged()
			}
		}
	}
}
