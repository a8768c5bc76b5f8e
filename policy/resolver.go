package policy

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/netaddr"
)

// fragmentKey has the inputs, besides a policy and its peers, that the addresses in its rules depend on.
type fragmentKey struct {
	direction Direction
	networks  string // of kind Multi: the networks of the subject's interface
	part      part
}

// part are the peers of a policy that a fragment is about.
type part struct {
	isDivided bool   // else all peers
	namespace string // of pods; if it is the policy's own, also addresses and nodes
}

// resolution makes rules of the subject's policies.
type resolution struct {
	reading
	kept *fragments
	work *Work
}

// rulesFor returns the rules for a part of a policy's peers. They are resolved once for all subjects for which the
// addresses are the same.
func (rs *resolution) rulesFor(policy *policyState, p part) []Rule {
	return rs.rulesOf(rs.fragment(policy, p))
}

// readRules returns the rules of a policy for all peers that are read.
func (rs *resolution) readRules(policy *policyState) []Rule {
	if rs.unread == nil {
		return rs.rulesFor(policy, part{})
	}
	rules := rs.rulesFor(policy, policy.own())
	for _, namespace := range rs.peersOf(policy).namespaces {
		rules = append(rules, rs.rulesFor(policy, part{true, namespace})...)
	}
	return rules
}

func (rs *resolution) fragment(policy *policyState, p part) fragment {
	key := fragmentKey{direction: rs.direction, part: p}
	if policy.Kind == Multi {
		key.networks = strings.Join(rs.nic.Networks, ",")
	}
	if known, is := rs.kept.find(policy, key); is {
		return known
	}
	rs.work.Fragments++
	r := resolver{resolution: rs, policy: policy, part: p}
	var resolved fragment
	for _, clause := range r.clauses() {
		resolved = append(resolved, r.resolve(clause))
	}
	rs.kept.add(policy, key, resolved)
	return resolved
}

// isNamed reports whether a port is the port of a name.
func (p Port) isNamed() bool { return p.Name != "" }

// names reports whether a port refers to the named port of a container.
func (p Port) names(n NamedPort) bool {
	return p.Name == n.Name && (p.Protocol == AnyProtocol || p.Protocol == n.Protocol)
}

// resolver resolves the peers of a policy for an interface of a subject.
type resolver struct {
	*resolution
	policy *policyState
	part   part
}

// clauses lists the clauses about the part.
func (f *resolver) clauses() []Clause {
	all := f.policy.Rules[f.direction]
	if !f.part.isDivided || f.part.namespace == f.policy.Namespace {
		return all
	}
	var about []Clause
	for _, n := range f.peersOf(f.policy).clauses[f.part.namespace] {
		about = append(about, all[n].aboutPods())
	}
	return about
}

// members yields the pods that a selector of peers selects.
func (f *resolver) members(peer *Selector) iter.Seq[*podState] {
	of := f.policy.peers[peer.key]
	if f.part.isDivided {
		return slices.Values(f.spreadOf(of).members[f.part.namespace])
	}
	return maps.Keys(of.members)
}

// resolve returns a clause of the policy with addresses.
func (f *resolver) resolve(r Clause) resolved {
	is := resolved{action: r.Action, isAnyPort: r.AnyPort, origin: f.policy.String() + " " + r.Name}
	if f.direction == Ingress && slices.ContainsFunc(r.Ports, Port.isNamed) {
		is.bySubject = r.Ports
	} else {
		is.ports = f.portsOfSubject(r.Ports)
	}
	if r.AnyPort || len(is.ports)+len(is.bySubject) > 0 {
		is.remotes = f.remotes(r)
	}
	if r.AnyPort || f.direction == Ingress {
		return is
	}
	for _, p := range r.Ports {
		if p.Name == "" {
			continue
		}
		for _, n := range f.portsOfPeers(r, p) {
			if len(n.addresses) > 0 {
				ports := []PortRange{{n.Protocol, Range{n.Port, n.Port}}}
				is.named = append(is.named, Rule{
					Action:  r.Action,
					Remotes: n.addresses,
					Ports:   ports,
					Origin:  is.origin,
				})
			}
		}
	}
	return is
}

// portsOfSubject returns the ports of a clause that do not depend on the peer.
func (rs *resolution) portsOfSubject(all []Port) []PortRange {
	var ports []PortRange
	read := make(map[Port]bool) // names: a clause may have one many times
	for _, p := range all {
		if !p.isNamed() {
			ports = append(ports, PortRange{p.Protocol, p.Ports})
			continue
		}
		if rs.direction == Egress || read[p] {
			continue
		}
		read[p] = true
		for _, n := range rs.pod.portsOfName(p.Name) {
			rs.work.Ports++
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
	if f.direction == Ingress && f.nic.isOnDefault() {
		clients = f.cluster.clients
	}
	var all []netip.Prefix
	for _, peer := range r.Peers {
		switch {
		case peer.Pods != nil:
			for p := range f.members(peer.Pods) {
				all = append(all, addressesOf(f.policy, p, f.nic, clients)...)
			}
		case peer.Nodes != nil:
			for _, n := range f.cluster.nodes {
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

// addressesOf lists the addresses of a peer that an interface of the subject reaches: of main interfaces, or of those
// on a network of both and of the policy. Networks may have the same addresses. The client addresses of these are among
// them.
func addressesOf(policy *policyState, p *podState, i *Interface, clients ClientMap) []netip.Prefix {
	var all []netip.Prefix
	for n := range p.Interfaces {
		x := &p.Interfaces[n]
		if !policy.applies(x) ||
			policy.Kind == Multi &&
				!slices.ContainsFunc(x.Networks, func(n string) bool { return slices.Contains(i.Networks, n) }) {
			continue
		}
		all = append(all, clients.sourcesOf(x)...)
		if policy.Namespace == p.Namespace {
			for _, a := range x.Claimed {
				all = append(all, netaddr.Single(a))
			}
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
			for _, n := range p.portsOfName(port.Name) {
				f.work.Ports++
				if port.names(n) {
					by[n] = append(by[n], addressesOf(f.policy, p, f.nic, ClientMap{})...)
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
