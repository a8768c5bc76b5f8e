package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
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

// compile returns the rules of an interface by direction; nil: everything is permitted.
func (e *Engine) compile(p *podState, i *Interface) *[2][]Rule {
	policies := e.policiesOf(p, i)
	var rules [2][]Rule
	for _, d := range []Direction{Ingress, Egress} {
		own := e.evaluationOrder(policies, d, p, i)
		if d == Egress && i.Main && own != nil {
			own = append(e.toServices(own, i), own...)
		}
		rules[d] = append(e.fixed(d, i), own...)
	}
	if len(rules[Ingress])+len(rules[Egress]) == 0 {
		return nil
	}
	for d := range rules {
		// A list that permits everything opens the sessions by which replies pass the other one.
		rules[d] = append(rules[d], rest(Allow, "no policy selects the pod")...)
		rules[d] = cut(rules[d])
	}
	return &rules
}

// fixed are the rules that no policy overrides.
func (e *Engine) fixed(d Direction, i *Interface) (rules []Rule) {
	switch {
	case !i.Main:
	case d == Egress:
		for _, x := range e.config.Denied {
			rules = append(rules, Rule{Action: Deny, Protocol: x.Protocol, Remote: x.Prefix, Ports: rangeOf(x.Protocol, x.Ports), Origin: x.Name})
		}
	}
	return rules
}

func rangeOf(protocol uint8, r Range) Range {
	if protocol == AnyProtocol {
		return allPorts
	}
	return r
}

// rest are the rules for all connections that no rule before matches.
func rest(a Action, origin string) []Rule {
	var rules []Rule
	for _, p := range everywhere {
		rules = append(rules, Rule{Action: a, Remote: p, Ports: allPorts, Origin: origin})
	}
	return rules
}

// cut removes the rules behind those that match everything.
func cut(rules []Rule) []Rule {
	matched := 0
	for n, r := range rules {
		if r.Protocol == AnyProtocol && r.Remote.Bits() == 0 {
			if matched |= 1 << (r.Remote.Addr().BitLen() / 64); matched == 1|1<<2 {
				return rules[:n+1]
			}
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
func (e *Engine) evaluationOrder(policies []*policyState, d Direction, p *podState, i *Interface) []Rule {
	var admin, allowed, baseline []Rule
	var isolating []string
	for _, policy := range policies {
		switch policy.Kind {
		case Admin:
			admin = append(admin, e.fragment(policy, d, p, i)...)
		case Baseline:
			baseline = append(baseline, e.fragment(policy, d, p, i)...)
		default:
			if policy.Isolates[d] {
				allowed = append(allowed, e.fragment(policy, d, p, i)...)
				isolating = append(isolating, policy.String())
			}
		}
	}
	lower := baseline
	switch {
	case len(isolating) > 0:
		lower = append(allowed, rest(Deny, strings.Join(isolating, ", ")+" "+d.String()+": no rule allows it")...)
	case len(admin)+len(baseline) == 0:
		return nil
	default:
		lower = append(slices.Clip(lower), rest(Allow, "no policy denies it")...)
	}
	var rules []Rule
	if d == Ingress && i.isOnDefault() {
		rules = e.fromNode()
	}
	return append(rules, flatten(admin, lower)...)
}

// fromNode permits connections from this node. They come first, so that no policy stops kubelet's probes.
func (e *Engine) fromNode() []Rule {
	var rules []Rule
	for _, p := range e.config.Nodes {
		rules = append(rules, Rule{Remote: p, Ports: allPorts, Origin: "the pod's own node"})
	}
	return rules
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
	var some bool
	if both.Remote, some = intersect(r.Remote, l.Remote); !some {
		return l, false
	}
	switch {
	case r.Protocol == AnyProtocol:
		return both, true
	case l.Protocol == AnyProtocol:
		both.Protocol, both.Ports = r.Protocol, r.Ports
		return both, true
	case l.Protocol != r.Protocol:
		return l, false
	}
	both.Ports, some = r.Ports.intersect(l.Ports)
	return both, some
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
	add := func(remotes []netip.Prefix, protocol uint8, ports Range) {
		for _, remote := range remotes {
			rules = append(rules, Rule{Action: r.Action, Protocol: protocol, Remote: remote, Ports: ports, Origin: origin})
		}
	}
	var remotes []netip.Prefix // of rules whose ports do not depend on the peer
	if r.AnyPort || slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Name == "" || d == Ingress }) {
		remotes = e.remotes(policy, r, d, subject.nic)
	}
	if r.AnyPort {
		add(remotes, AnyProtocol, allPorts)
		return rules
	}
	for _, p := range r.Ports {
		switch {
		case p.Name == "":
			add(remotes, p.Protocol, p.Ports)
		case d == Ingress:
			for _, n := range subject.pod.Ports {
				if p.names(n) {
					add(remotes, n.Protocol, Range{n.Port, n.Port})
				}
			}
		default:
			for _, n := range e.portsOfPeers(policy, r, p, subject.nic) {
				add(n.addresses, n.Protocol, Range{n.Port, n.Port})
			}
		}
	}
	return rules
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
		b = append(b[:0], byte(r.Action), r.Protocol, byte(r.Remote.Bits()))
		b = append(b, r.Remote.Addr().AsSlice()...)
		b = binary.BigEndian.AppendUint16(b, r.Ports.First)
		b = binary.BigEndian.AppendUint16(b, r.Ports.Last)
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.Origin)))
		h.Write(append(b, r.Origin...))
	}
	return hex.EncodeToString(h.Sum(nil)[:nameLength])
}

// Closed are the lists of an interface whose pod is not known yet: only the node reaches it.
func Closed(node []netip.Prefix) Lists {
	const origin = "the API server has not shown the pod yet"
	deny := rest(Deny, origin)
	ingress := append((&Engine{config: Config{Nodes: node}}).fromNode(), deny...)
	return Lists{{Name: nameOf(ingress), Rules: ingress}, {Name: nameOf(deny), Rules: deny}}
}
