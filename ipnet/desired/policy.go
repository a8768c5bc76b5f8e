package desired

import (
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// Types of ICMP in the rules of all policies.
const (
	icmpUnreachable      = 3   // RFC 792, includes "fragmentation needed"
	icmpTimeExceeded     = 11  // RFC 792
	icmpParameterProblem = 12  // RFC 792
	icmpv6FirstError     = 1   // RFC 4443: errors are 1 to 4
	icmpv6LastError      = 4   // RFC 4443
	icmpv6Solicitation   = 135 // RFC 4861 4.3
	icmpv6Advertisement  = 136 // RFC 4861 4.4
)

// ACLs keep the ACLs of the interfaces of a node: each list of rules is converted once while it is in use. The zero
// value has no ACLs.
type ACLs struct{ made, used map[string]wire.ACL }

// Of returns the ACLs of an interface with these rules of policies; none without rules. GuardACL is not one of them: a
// guarded interface has its rules in the ACL for the packets that it sends. The lists are in use from now on.
func (k *ACLs) Of(lists policy.Lists, isGuarded bool) []wire.ACL {
	if lists == (policy.Lists{}) {
		return nil
	}
	var all []wire.ACL
	for _, d := range []policy.Direction{policy.Egress, policy.Ingress} {
		guards := isGuarded && d == policy.Egress
		name := nameOfPolicy(lists[d], d, guards)
		acl, isUsed := k.used[name]
		if !isUsed {
			acl = k.convert(name, lists[d], d, guards)
		}
		all = append(all, acl)
	}
	return all
}

// convert converts a list, unless it was in use before.
func (k *ACLs) convert(name string, l *policy.List, d policy.Direction, isGuarded bool) wire.ACL {
	acl, known := k.made[name]
	if !known {
		acl = policyACL(l, d, isGuarded)
	}
	if k.used == nil {
		k.used = make(map[string]wire.ACL)
	}
	k.used[name] = acl
	return acl
}

// Forget forgets the ACLs that were not asked for since the last call.
func (k *ACLs) Forget() {
	k.made = k.used
	k.used = nil
}

// namesOfACLs returns the names of the ACLs for the packets that an interface sends and receives.
func namesOfACLs(lists policy.Lists, isGuarded bool) (input, output []string) {
	switch {
	case lists != policy.Lists{}:
		return []string{nameOfPolicy(lists[policy.Egress], policy.Egress, isGuarded)}, []string{
			nameOfPolicy(lists[policy.Ingress], policy.Ingress, false),
		}
	case isGuarded:
		return []string{GuardACL}, nil
	}
	return nil, nil
}

// nameOfPolicy names the ACL of a list. The name identifies the content, so the content of an ACL never changes.
func nameOfPolicy(l *policy.List, d policy.Direction, isGuarded bool) string {
	if isGuarded {
		return "weft:guarded-" + d.String() + ":" + l.Name
	}
	return "weft:" + d.String() + ":" + l.Name
}

// policyACL converts a list. Neighbour discovery and, towards the pod, ICMP errors are permitted whatever policies say:
// they belong to connections that policies permit.
func policyACL(l *policy.List, d policy.Direction, isGuarded bool) wire.ACL {
	rules := permitted(d)
	rules = slices.Grow(rules, len(l.Rules))
	shared := make(portsOf)
	for _, r := range l.Rules {
		rules = append(rules, rulesOf(r, d, shared)...)
	}
	if isGuarded {
		rules = behind(Guard().Rules, rules)
	}
	return wire.ACL{Label: nameOfPolicy(l, d, isGuarded), Rules: rules}
}

func permitted(d policy.Direction) []wire.ACLRule {
	icmp := func(f netaddr.Family, protocol, first, last uint16) wire.ACLRule {
		return wire.ACLRule{
			Permit: true, Family: f,
			Ports: []wire.ACLPorts{
				{
					Protocols:    wire.Single(protocol),
					Sources:      wire.Range{First: first, Last: last},
					Destinations: allTypes,
				},
			},
		}
	}
	rules := []wire.ACLRule{icmp(netaddr.IP6, protocolICMPv6, icmpv6Solicitation, icmpv6Advertisement)}
	if d == policy.Egress {
		return rules
	}
	return append(rules,
		icmp(netaddr.IP4, protocolICMP, icmpUnreachable, icmpUnreachable),
		icmp(netaddr.IP4, protocolICMP, icmpTimeExceeded, icmpParameterProblem),
		icmp(netaddr.IP6, protocolICMPv6, icmpv6FirstError, icmpv6LastError),
	)
}

// portsOf are converted ports. Thousands of rules may have the same ones.
type portsOf map[policy.PortRange][]wire.ACLPorts

// of converts ports.
func (k portsOf) of(ranges []policy.PortRange) []wire.ACLPorts {
	if len(ranges) == 1 && k[ranges[0]] != nil {
		return k[ranges[0]]
	}
	ports := make([]wire.ACLPorts, 0, len(ranges))
	for _, p := range ranges {
		ports = append(ports, wire.ACLPorts{
			Protocols:    wire.Single(uint16(p.Protocol)),
			Sources:      allPorts,
			Destinations: wire.Range{First: p.First, Last: p.Last},
		})
	}
	switch len(ranges) {
	case 0:
		return nil
	case 1:
		k[ranges[0]] = ports
	}
	return ports
}

// rulesOf converts a rule: one for each family.
func rulesOf(r policy.Rule, d policy.Direction, shared portsOf) []wire.ACLRule {
	permit := r.Action == policy.Allow
	ports := shared.of(r.Ports)
	var rules []wire.ACLRule
	for _, remotes := range policy.ByFamily(r.Remotes) {
		out := wire.ACLRule{
			Permit:  permit,
			Reflect: permit,
			Family:  netaddr.FamilyOf(remotes[0].Addr()),
			Ports:   ports,
			Origin:  r.Origin,
		}
		if remotes[0].Bits() == 0 {
			remotes = nil
		}
		if d == policy.Ingress {
			out.From = remotes
		} else {
			out.To = remotes
		}
		rules = append(rules, out)
	}
	return rules
}

// behind returns the rules that permit what both lists permit. The rules of one policy stay together, so that the first
// rule of a protocol that matches a later fragment is the one of the guard that permits it. Rules that deny need no
// guard.
func behind(guard, rules []wire.ACLRule) []wire.ACLRule {
	var all []wire.ACLRule
	for _, r := range rules {
		if !r.Permit {
			all = append(all, r)
			continue
		}
		for _, g := range guard {
			both, some := common(g, r)
			if !some {
				continue
			}
			if !g.Permit {
				both.Permit = false
				both.Reflect = false
				both.Origin = "only routers and DHCP servers send it"
			}
			all = append(all, both)
		}
	}
	return all
}

// common returns r for the packets that g matches, too. Rules of guards have no addresses.
func common(g, r wire.ACLRule) (wire.ACLRule, bool) {
	if g.Family != r.Family {
		return r, false
	}
	switch {
	case len(g.Ports) == 0:
		return r, true
	case len(r.Ports) == 0:
		r.Ports = g.Ports
		return r, true
	}
	var ports []wire.ACLPorts
	for _, a := range r.Ports {
		for _, b := range g.Ports {
			if both, some := commonPorts(a, b); some {
				ports = append(ports, both)
			}
		}
	}
	r.Ports = ports
	return r, len(ports) > 0
}

func commonPorts(a, b wire.ACLPorts) (wire.ACLPorts, bool) {
	for _, x := range []struct {
		in    *wire.Range
		other wire.Range
	}{{&a.Protocols, b.Protocols}, {&a.Sources, b.Sources}, {&a.Destinations, b.Destinations}} {
		x.in.First = max(x.in.First, x.other.First)
		x.in.Last = min(x.in.Last, x.other.Last)
		if x.in.First > x.in.Last {
			return a, false
		}
	}
	return a, true
}

// Filter applies the ACLs of the link to its packets.
func (l Link) Filter(v *Values) {
	if input, output := namesOfACLs(l.Rules, l.Guarded); len(input)+len(output) > 0 {
		v.Add(wire.InterfaceACLKey(l.Object), wire.InterfaceACL{Interface: l.Object, Input: input, Output: output})
	}
}

// IsFiltered reports whether the link has ACLs. It is connected only behind them.
func (l Link) IsFiltered() bool { return l.Guarded || l.Rules != policy.Lists{} }
