package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// fragmentKey says what the addresses and ports in the rules of a policy depend on beside its peers.
type fragmentKey struct {
	direction Direction
	ports     string // in ingress: the named ports of the subject
	networks  string // of kind Multi: the networks of the subject's interface
}

// compiled are the rules of an interface by direction, and what they lack because of limits.
type compiled struct {
	rules  [2][]Rule
	own    [2]int // rules of the dataplane for the policies of the namespace
	excess []Excess
}

// compilation makes the list of one direction of an interface.
type compilation struct {
	*Engine
	pod       *podState
	nic       *Interface
	direction Direction
	isStarved bool // other pods of the namespace have its rules
	own       int  // rules that the policies of the namespace have
	excess    []Excess
}

// isGuarded reports whether the network of the interface may permit what the pod sends by protocol.
func (c *compilation) isGuarded() bool { return c.direction == Egress && !c.nic.Main }

// ownLimit returns the limit of the policies of a namespace. Only main interfaces have other rules.
func (c *compilation) ownLimit() int {
	switch {
	case c.isStarved:
		return 0
	case c.nic.Main:
		return c.limits.Own
	}
	return c.limits.Further
}

// leaveOutForRules leaves out a policy of the namespace that needs more rules than there are.
func (c *compilation) leaveOutForRules(policy *policyState, size int) {
	limit := c.ownLimit()
	if c.isStarved {
		limit = c.limits.Node
	}
	c.leaveOut(policy, size, limit, unitRules)
}

func (c *compilation) size(r *Rule) int { return r.Size(c.isGuarded()) }

// compile returns the rules of an interface; nil: everything is permitted. If it is starved, the policies of its namespace allow nothing.
func (e *Engine) compile(p *podState, i *Interface, isStarved bool) *compiled {
	policies := e.policiesOf(p, i)
	var all compiled
	for _, d := range []Direction{Ingress, Egress} {
		c := &compilation{Engine: e, pod: p, nic: i, direction: d, isStarved: isStarved}
		own := c.evaluationOrder(policies)
		if d == Egress && i.Main && own != nil {
			own = append(c.toServices(own), own...)
		}
		all.rules[d] = append(e.fixed(d, i), own...)
		all.own[d] = c.own
		all.excess = append(all.excess, c.excess...)
	}
	if len(all.rules[Ingress])+len(all.rules[Egress]) == 0 {
		return nil
	}
	for d := range all.rules {
		// A list that permits everything opens the sessions by which replies pass the other one.
		all.rules[d] = cut(append(all.rules[d], rest(Allow, "no policy selects the pod")))
	}
	return &all
}

// fixed are the rules that no policy overrides.
func (e *Engine) fixed(d Direction, i *Interface) []Rule {
	if !i.Main || d != Egress {
		return nil
	}
	return slices.Clone(e.denied)
}

func rangesOf(protocol uint8, r Range) []PortRange {
	if protocol == AnyProtocol {
		return nil
	}
	return []PortRange{{protocol, r}}
}

// rest is the rule for all connections that no rule before matches.
func rest(a Action, origin string) Rule { return Rule{Action: a, Remotes: everywhere, Origin: origin} }

// cut removes the rules behind those that match everything.
func cut(rules []Rule) []Rule {
	var matched [2]bool // by family
	for n := range rules {
		for f, family := range everywhere {
			matched[f] = matched[f] || rules[n].isForAll(family)
		}
		if matched == [2]bool{true, true} {
			return rules[:n+1]
		}
	}
	return rules
}

// policiesOf lists the policies of an interface in the order of their evaluation.
func (e *Engine) policiesOf(p *podState, i *Interface) []*policyState {
	var list []*policyState
	for g := range p.groups {
		for policy := range g.subjects {
			if policy.applies(i) {
				list = append(list, policy)
			}
		}
	}
	slices.SortFunc(list, comparePolicies)
	return list
}

// applies reports whether a policy is about an interface of its subjects.
func (p *policyState) applies(i *Interface) bool {
	if p.Kind == Multi {
		return !i.Main && slices.ContainsFunc(i.Networks, func(n string) bool { return slices.Contains(p.Networks, n) })
	}
	return i.Main
}

// evaluationOrder puts the rules of policies into one list: first those of kind Admin; then, if policies of kind Network or Multi isolate the
// pod, what these allow and nothing else; else those of kind Baseline. It returns nil if no policy restricts the direction.
func (c *compilation) evaluationOrder(policies []*policyState) []Rule {
	var admin, baseline []Rule
	var isolating []*policyState
	for _, policy := range policies {
		switch policy.Kind {
		case Admin:
			admin = append(admin, c.adminRules(policy)...)
		case Baseline:
			baseline = append(baseline, c.adminRules(policy)...)
		default:
			if policy.Isolates[c.direction] {
				isolating = append(isolating, policy)
			}
		}
	}
	if len(isolating)+len(admin)+len(baseline) == 0 {
		return nil
	}
	admin = c.bound(admin, c.limits.Admin, c.size)
	var passes []Rule
	for _, r := range admin {
		if r.Action == Pass {
			passes = append(passes, r)
		}
	}
	size := func(r *Rule) int { return c.sizeBehind(passes, r) }
	var lower []Rule
	if len(isolating) > 0 {
		lower = c.isolate(isolating, size)
	} else {
		lower = append(slices.Clip(c.bound(baseline, c.limits.Own, size)), rest(Allow, "no policy denies it"))
	}
	var rules []Rule
	if c.direction == Ingress && c.nic.isOnDefault() {
		rules = c.fromNode()
	}
	return append(rules, flatten(admin, lower)...)
}

// sizeBehind returns the size of a rule behind rules that pass: it is there for each of them, and for itself.
func (c *compilation) sizeBehind(passes []Rule, r *Rule) int {
	n := c.size(r)
	for _, p := range passes {
		if both, some := p.intersect(*r); some {
			n += c.size(&both)
		}
	}
	return n
}

// bound bounds the rules of cluster-wide policies.
func (c *compilation) bound(rules []Rule, limit int, size func(*Rule) int) []Rule {
	bounded, over := boundAdmin(rules, limit, size)
	for _, origin := range slices.Sorted(maps.Keys(over)) {
		c.excess = append(c.excess, Excess{Of: origin, Effect: effectDenies, Size: over[origin], Limit: limit, Unit: unitRules})
	}
	return bounded
}

// adminRules returns the rules of a cluster-wide policy. If it has too many peers to read, they deny any address.
func (c *compilation) adminRules(policy *policyState) []Rule {
	effort := c.effortFor(policy, c.direction)
	if effort <= c.limits.Effort {
		return c.fragment(policy, c.direction, c.pod, c.nic)
	}
	c.excess = append(c.excess, Excess{Of: policy.String(), Effect: effectDenies, Size: effort, Limit: c.limits.Effort, Unit: unitAddresses})
	var rules []Rule
	for _, r := range policy.Rules[c.direction] {
		if r.Action == Allow {
			continue
		}
		wide := Rule{Action: Deny, Remotes: everywhere, Origin: policy.String() + " " + r.Name + " (denies more: too many peers)"}
		isNamed := slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Name != "" })
		if !r.AnyPort && !(isNamed && c.direction == Egress) {
			if wide.Ports = portsOfSubject(r, c.direction, c.pod); len(wide.Ports) == 0 {
				continue // it matches nothing
			}
		}
		rules = append(rules, wide)
	}
	return rules
}

// isolate returns what the policies of a namespace allow, and the rule that denies everything else. size is that of a rule in the list.
func (c *compilation) isolate(policies []*policyState, size func(*Rule) int) []Rule {
	efforts := make([]int, len(policies))
	for n, policy := range policies {
		efforts[n] = c.effortFor(policy, c.direction)
	}
	sizes := make([]int, len(policies))
	fragments := make([][]Rule, len(policies))
	readable := atMost(efforts, c.limits.Effort)
	for n, policy := range policies {
		switch {
		case policy.isCrowded:
			c.leaveOut(policy, len(policy.wide), c.limits.Selectors, unitSelectors)
			continue
		case policy.hasTooManySelectors():
			c.leaveOut(policy, policy.selectors, maxSelectors, unitSelectors)
			continue
		case !readable[n]:
			c.leaveOut(policy, efforts[n], c.limits.Effort, unitAddresses)
			continue
		}
		fragments[n] = c.fragment(policy, c.direction, c.pod, c.nic)
		for k := range fragments[n] {
			sizes[n] += size(&fragments[n][k])
		}
	}
	fit := atMost(sizes, c.ownLimit())
	var allowed []Rule
	var names []string
	for n, policy := range policies {
		name := policy.String()
		switch {
		case !readable[n]:
			name += leftOut
		case !fit[n]:
			c.leaveOutForRules(policy, sizes[n])
			name += leftOut
		default:
			allowed = append(allowed, fragments[n]...)
			c.own += sizes[n]
		}
		names = append(names, name)
	}
	return append(allowed, rest(Deny, listed(names)+" "+c.direction.String()+": no rule allows it"))
}

// leftOut marks a policy whose rules are left out, in explanations.
const leftOut = " (over the limit of rules)"

func (c *compilation) leaveOut(policy *policyState, size, limit int, unit string) {
	c.excess = append(c.excess, Excess{Of: policy.String(), Effect: effectIsolates, Size: size, Limit: limit, Unit: unit})
}

// maxListed is the number of policies that an explanation names: thousands of policies may select a pod.
const maxListed = 8

// listed joins names.
func listed(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// effortFor returns the number of addresses that are read to resolve a policy in one direction, at most. It does not read them.
func (e *Engine) effortFor(policy *policyState, d Direction) int {
	switch {
	case policy.hasTooManySelectors():
		return e.limits.Effort + policy.selectors
	case policy.efforts[d] > 0:
		return policy.efforts[d]
	}
	n := 1
	for _, r := range policy.Rules[d] {
		n += 1 + len(r.Ports)
		readings := 1 // of peers: named ports of egress rules read them again
		for _, p := range r.Ports {
			if d == Egress && p.Name != "" {
				readings++
			}
		}
		for _, peer := range r.Peers {
			switch {
			case peer.Pods != nil:
				n += readings * (1 + len(policy.peers[peer.Pods.key].members))
			case peer.Nodes != nil:
				n += 1 + len(e.nodes)
			default:
				n += len(peer.Prefixes) * (1 + len(e.clients.pods))
			}
		}
	}
	policy.efforts[d] = n
	return n
}

// fromNode permits connections from this node. They come first, so that no policy stops kubelet's probes.
func (e *Engine) fromNode() []Rule {
	if len(e.config.Nodes) == 0 {
		return nil
	}
	return []Rule{{Remotes: aggregate(e.config.Nodes), Origin: "the pod's own node"}}
}

// flatten replaces each rule that passes by the part of the lower rules that it matches. The lower rules match everything.
func flatten(upper, lower []Rule) []Rule {
	var rules []Rule
	for _, u := range upper {
		if u.Action != Pass {
			rules = append(rules, u)
			continue
		}
		for _, l := range lower {
			if both, some := u.intersect(l); some {
				rules = append(rules, both)
			}
		}
	}
	return append(rules, lower...)
}

// intersect returns l for the connections that r matches, too.
func (r Rule) intersect(l Rule) (Rule, bool) {
	both := l
	both.Remotes = intersectAll(r.Remotes, l.Remotes)
	var some bool
	both.Ports, some = intersectPorts(r.Ports, l.Ports)
	return both, some && len(both.Remotes) > 0
}

// fragment returns the rules of a policy in one direction for an interface of a subject. It resolves them once for all subjects for which
// they are the same.
func (e *Engine) fragment(policy *policyState, d Direction, p *podState, i *Interface) []Rule {
	key := fragmentKey{direction: d}
	if d == Ingress {
		key.ports = policy.portsOf(p)
	}
	if policy.Kind == Multi {
		key.networks = strings.Join(i.Networks, ",")
	}
	rules, done := policy.fragments[key]
	if !done {
		e.work.Fragments++
		if policy.fragments == nil {
			policy.fragments = make(map[fragmentKey][]Rule)
		}
		for _, r := range policy.Policy.Rules[d] {
			rules = append(rules, e.resolve(policy, r, d, end{pod: p, nic: i})...)
		}
		policy.fragments[key] = rules
	}
	return rules
}

// portsOf names the ports of a subject that the policy's ingress rules refer to.
func (p *policyState) portsOf(pod *podState) string {
	var b strings.Builder
	for _, r := range p.Rules[Ingress] {
		for _, port := range r.Ports {
			if port.Name == "" {
				continue
			}
			for _, n := range pod.Ports {
				if port.names(n) {
					fmt.Fprintf(&b, "%s %d %d,", n.Name, n.Protocol, n.Port)
				}
			}
			b.WriteByte(';')
		}
	}
	return b.String()
}

// names reports whether a port refers to the named port of a container.
func (p Port) names(n NamedPort) bool {
	return p.Name == n.Name && (p.Protocol == AnyProtocol || p.Protocol == n.Protocol)
}

// resolve returns a clause of a policy with addresses and ports, for an interface of a subject.
func (e *Engine) resolve(policy *policyState, r Clause, d Direction, subject end) []Rule {
	origin := policy.String() + " " + r.Name
	var rules []Rule
	add := func(remotes []netip.Prefix, ports []PortRange) {
		if len(remotes) > 0 {
			rules = append(rules, Rule{Action: r.Action, Remotes: remotes, Ports: ports, Origin: origin})
		}
	}
	if r.AnyPort {
		add(e.remotes(policy, r, d, subject.nic), nil)
		return rules
	}
	if ports := portsOfSubject(r, d, subject.pod); len(ports) > 0 {
		add(e.remotes(policy, r, d, subject.nic), ports)
	}
	if d == Ingress {
		return rules
	}
	for _, p := range r.Ports {
		if p.Name == "" {
			continue
		}
		for _, n := range e.portsOfPeers(policy, r, p, subject.nic) {
			add(n.addresses, []PortRange{{n.Protocol, Range{n.Port, n.Port}}})
		}
	}
	return rules
}

// portsOfSubject returns the ports of a clause that do not depend on the peer.
func portsOfSubject(r Clause, d Direction, subject *podState) []PortRange {
	var ports []PortRange
	for _, p := range r.Ports {
		if p.Name == "" {
			ports = append(ports, PortRange{p.Protocol, p.Ports})
			continue
		}
		if d == Egress {
			continue
		}
		for _, n := range subject.Ports {
			if p.names(n) {
				ports = append(ports, PortRange{n.Protocol, Range{n.Port, n.Port}})
			}
		}
	}
	return mergePorts(ports)
}

// remotes lists the addresses of a rule's peers: in ingress, all that their packets can have as their source.
func (e *Engine) remotes(policy *policyState, r Clause, d Direction, i *Interface) []netip.Prefix {
	if r.Any {
		return everywhere
	}
	var clients ClientMap
	if d == Ingress && i.isOnDefault() {
		clients = e.clients
	}
	var all []netip.Prefix
	for _, peer := range r.Peers {
		switch {
		case peer.Pods != nil:
			for p := range policy.peers[peer.Pods.key].members {
				all = append(all, addressesOf(policy, p, i, clients)...)
			}
		case peer.Nodes != nil:
			for _, n := range e.nodes {
				if peer.Nodes.Matches(n.labels) {
					all = append(all, n.addresses...)
				}
			}
		default:
			for _, prefix := range peer.Prefixes {
				all = append(all, clients.Sources(prefix)...)
			}
		}
	}
	return aggregate(all)
}

// addressesOf lists the addresses of a peer that an interface of the subject reaches: of main interfaces, or of those on a network of both
// and of the policy. Networks may have the same addresses. The client addresses of these are among them.
func addressesOf(policy *policyState, p *podState, i *Interface, clients ClientMap) []netip.Prefix {
	var all []netip.Prefix
	for n := range p.Interfaces {
		x := &p.Interfaces[n]
		if !policy.applies(x) || policy.Kind == Multi && !slices.ContainsFunc(x.Networks, func(n string) bool { return slices.Contains(i.Networks, n) }) {
			continue
		}
		all = append(all, clients.sourcesOf(x)...)
		if policy.Namespace == p.Namespace {
			all = append(all, singles(x.Claimed)...)
		}
	}
	return all
}

// portOfPeers is a named port with the addresses of the peers that have it.
type portOfPeers struct {
	NamedPort
	addresses []netip.Prefix
}

// portsOfPeers resolves a named port of an egress rule. Only pods have named ports.
func (e *Engine) portsOfPeers(policy *policyState, r Clause, port Port, i *Interface) []portOfPeers {
	by := make(map[NamedPort][]netip.Prefix)
	for _, peer := range r.Peers {
		if peer.Pods == nil {
			continue
		}
		for p := range policy.peers[peer.Pods.key].members {
			for _, n := range p.Ports {
				if port.names(n) {
					by[n] = append(by[n], addressesOf(policy, p, i, ClientMap{})...)
				}
			}
		}
	}
	var list []portOfPeers
	for n, addresses := range by {
		list = append(list, portOfPeers{n, aggregate(addresses)})
	}
	slices.SortFunc(list, func(a, b portOfPeers) int {
		return int(a.Protocol)<<16 + int(a.Port) - int(b.Protocol)<<16 - int(b.Port)
	})
	return list
}

// nameLength is the number of bytes of the hash in a name. Pods share lists by name, and users choose parts of the content, so two contents
// with one name must not be found: with 8 bytes, 2^32 attempts would be enough. More than 14 do not fit into the label of an ACL.
const nameLength = 14

// nameOf names a list by its content.
func nameOf(rules []Rule) string {
	h := sha256.New()
	var b []byte
	for _, r := range rules {
		b = append(b[:0], byte(r.Action))
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.Remotes)))
		for _, p := range r.Remotes {
			b = append(b, byte(p.Addr().BitLen()), byte(p.Bits()))
			b = append(b, p.Addr().AsSlice()...)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.Ports)))
		for _, p := range r.Ports {
			b = append(b, p.Protocol)
			b = binary.BigEndian.AppendUint16(b, p.First)
			b = binary.BigEndian.AppendUint16(b, p.Last)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.Origin)))
		h.Write(append(b, r.Origin...))
	}
	return hex.EncodeToString(h.Sum(nil)[:nameLength])
}

// Closed are the lists of an interface whose pod is not known yet: only the node reaches it.
func Closed(node []netip.Prefix) Lists {
	const origin = "the API server has not shown the pod yet"
	deny := []Rule{rest(Deny, origin)}
	ingress := append((&Engine{config: Config{Nodes: node}}).fromNode(), deny...)
	return Lists{{Name: nameOf(ingress), Rules: ingress}, {Name: nameOf(deny), Rules: deny}}
}
