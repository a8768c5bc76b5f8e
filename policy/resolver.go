package policy

import (
	"fmt"
	"iter"
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

// fragment returns the rules of a policy in one direction for an interface of a subject. It resolves them once for all subjects for which
// they are the same.
func (e *Engine) fragment(policy *policyState, d Direction, p *podState, i *Interface) []Rule {
	key := fragmentKeyOf(policy, d, p, i)
	rules, done := policy.fragments[key]
	if !done {
		e.work.Fragments++
		if policy.fragments == nil {
			policy.fragments = make(map[fragmentKey][]Rule)
		}
		of := resolver{Engine: e, policy: policy, direction: d, subject: end{pod: p, nic: i}}
		for _, r := range policy.Policy.Rules[d] {
			rules = append(rules, of.resolve(r)...)
		}
		policy.fragments[key] = rules
	}
	return rules
}

func fragmentKeyOf(policy *policyState, d Direction, p *podState, i *Interface) fragmentKey {
	key := fragmentKey{direction: d}
	if d == Ingress {
		key.ports = policy.portsOf(p)
	}
	if policy.Kind == Multi {
		key.networks = strings.Join(i.Networks, ",")
	}
	return key
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

// resolver resolves the peers and ports of a policy for an interface of a subject.
type resolver struct {
	*Engine
	policy    *policyState
	direction Direction
	subject   end
	only      map[*group][]*podState // the pods that count as members; nil: all
}

// members yields the pods that a selector of peers selects.
func (f *resolver) members(peer *Selector) iter.Seq[*podState] {
	of := f.policy.peers[peer.key]
	if f.only != nil {
		return slices.Values(f.only[of])
	}
	return maps.Keys(of.members)
}

// resolve returns a clause of the policy with addresses and ports.
func (f *resolver) resolve(r Clause) []Rule {
	origin := f.policy.String() + " " + r.Name
	var rules []Rule
	add := func(remotes []netip.Prefix, ports []PortRange) {
		if len(remotes) > 0 {
			rules = append(rules, Rule{Action: r.Action, Remotes: remotes, Ports: ports, Origin: origin})
		}
	}
	if r.AnyPort {
		add(f.remotes(r), nil)
		return rules
	}
	if ports := portsOfSubject(r, f.direction, f.subject.pod); len(ports) > 0 {
		add(f.remotes(r), ports)
	}
	if f.direction == Ingress {
		return rules
	}
	for _, p := range r.Ports {
		if p.Name == "" {
			continue
		}
		for _, n := range f.portsOfPeers(r, p) {
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
func (f *resolver) remotes(r Clause) []netip.Prefix {
	if r.Any {
		return everywhere
	}
	var clients ClientMap
	if f.direction == Ingress && f.subject.nic.isOnDefault() {
		clients = f.clients
	}
	var all []netip.Prefix
	for _, peer := range r.Peers {
		switch {
		case peer.Pods != nil:
			for p := range f.members(peer.Pods) {
				all = append(all, addressesOf(f.policy, p, f.subject.nic, clients)...)
			}
		case peer.Nodes != nil:
			for _, n := range f.nodes {
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
func (f *resolver) portsOfPeers(r Clause, port Port) []portOfPeers {
	by := make(map[NamedPort][]netip.Prefix)
	for _, peer := range r.Peers {
		if peer.Pods == nil {
			continue
		}
		for p := range f.members(peer.Pods) {
			for _, n := range p.Ports {
				if port.names(n) {
					by[n] = append(by[n], addressesOf(f.policy, p, f.subject.nic, ClientMap{})...)
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
