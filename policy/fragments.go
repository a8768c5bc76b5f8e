package policy

import (
	"net/netip"
)

// resolved is a clause of a policy with its peers resolved to addresses. Subjects with other named ports share it.
type resolved struct {
	action    Action
	isAnyPort bool
	origin    string
	remotes   []netip.Prefix // of the peers; none: no peer has an address, or no port needs them
	ports     []PortRange    // if they do not depend on the subject
	bySubject []Port         // else
	named     []Rule         // in egress: for the named ports of peers
}

// fragment are the clauses of a policy in one direction.
type fragment []resolved

// size returns how much memory a fragment takes, as a number of addresses.
func (f fragment) size() int {
	const ofClause = 8 // the other fields take as much as so many addresses
	n := 0
	for i := range f {
		n += ofClause + len(f[i].remotes)
		for k := range f[i].named {
			n += ofClause + len(f[i].named[k].Remotes)
		}
	}
	return n
}

// rulesOf returns the rules of a fragment for the subject.
func (rs *resolution) rulesOf(f fragment) []Rule {
	rules := make([]Rule, 0, len(f))
	for i := range f {
		r := &f[i]
		ports := r.ports
		if r.bySubject != nil {
			ports = rs.portsOfSubject(r.bySubject)
		}
		if len(r.remotes) > 0 && (r.isAnyPort || len(ports) > 0) {
			rules = append(rules, Rule{Action: r.action, Remotes: r.remotes, Ports: ports, Origin: r.origin})
		}
		rules = append(rules, r.named...)
	}
	return rules
}

// maxKept bounds the fragments that the engine keeps, see [fragment.size]: about 16 MiB.
const maxKept = 1 << 19

// fragments are those that the engine keeps for other subjects, also if they are over a limit or without a subject.
// They are resolved again if they are forgotten.
type fragments struct {
	byPolicy map[*policyState]map[fragmentKey]fragment
	size     int
}

func (k *fragments) find(p *policyState, key fragmentKey) (fragment, bool) {
	f, is := k.byPolicy[p][key]
	return f, is
}

func (k *fragments) add(p *policyState, key fragmentKey, f fragment) {
	size := f.size()
	if k.size+size > maxKept {
		clear(k.byPolicy)
		k.size = 0
	}
	if size > maxKept {
		return
	}
	if k.byPolicy[p] == nil {
		k.byPolicy[p] = make(map[fragmentKey]fragment)
	}
	k.byPolicy[p][key] = f
	k.size += size
}

// drop forgets the fragments of a policy: its peers changed.
func (k *fragments) drop(p *policyState) {
	for _, f := range k.byPolicy[p] {
		k.size -= f.size()
	}
	delete(k.byPolicy, p)
}
