package policy

import (
	"maps"
	"slices"
	"strings"
)

// spread are the members of a selector of peers by their namespace.
type spread struct {
	members map[string][]*podState // those that a policy reads
	cut     []string               // namespaces that not all policies read, by name
}

// spreadOf returns the members of a selector. Policies share it.
func (rd *reading) spreadOf(g *group) *spread {
	if known := rd.spreads[g]; known != nil {
		return known
	}
	is := &spread{members: make(map[string][]*podState)}
	var cutAt map[string]*cutoff
	if rd.unread != nil {
		cutAt = rd.unread.at
	}
	for p := range g.members {
		if of := cutAt[p.Namespace]; of == nil || of.isRead {
			is.members[p.Namespace] = append(is.members[p.Namespace], p)
		}
	}
	for namespace := range cutAt {
		if rd.tallies.of(g).byNamespace[namespace] > 0 {
			is.cut = append(is.cut, namespace)
		}
	}
	slices.Sort(is.cut)
	if rd.spreads == nil {
		rd.spreads = make(map[*group]*spread)
	}
	rd.spreads[g] = is
	return is
}

// peers are the peers of a policy in one direction.
type peers struct {
	namespaces []string         // others than the policy's own, by name
	clauses    map[string][]int // with peers in a namespace, by their number
}

// peersOf returns the peers of a policy that are read.
func (rd *reading) peersOf(policy *policyState) *peers {
	if known := rd.peers[policy]; known != nil {
		return known
	}
	is := &peers{clauses: make(map[string][]int)}
	for n, r := range policy.Rules[rd.direction] {
		for _, peer := range r.Peers {
			if peer.Pods == nil {
				continue
			}
			for namespace := range rd.spreadOf(policy.peers[peer.Pods.key]).members {
				of := is.clauses[namespace]
				isNew := len(of) == 0 || of[len(of)-1] != n
				if isNew && namespace != policy.Namespace && rd.unread.isRead(policy, namespace) {
					is.clauses[namespace] = append(of, n)
				}
			}
		}
	}
	is.namespaces = slices.Sorted(maps.Keys(is.clauses))
	if rd.peers == nil {
		rd.peers = make(map[*policyState]*peers)
	}
	rd.peers[policy] = is
	return is
}

// unreadPeers lists namespaces of peers of a policy that are not read, by name: no more than an explanation names, and
// one.
func (rd *reading) unreadPeers(policy *policyState) []string {
	if rd.unread == nil {
		return nil
	}
	var all []string
	for g := range rd.effortOf(policy, rd.direction).readings {
		var of []string
		for _, namespace := range rd.spreadOf(g).cut {
			if !rd.unread.isRead(policy, namespace) {
				of = append(of, namespace)
			}
			if len(of) > maxListed {
				break
			}
		}
		all = append(all, of...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxListed+1)]
}

// some joins the names of a list, which may be shortened.
func some(names []string) string {
	if len(names) > maxListed {
		return strings.Join(names[:maxListed], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}

// largest returns the largest demand of namespaces.
func largest(namespaces []string, demands map[string]int) int {
	most := 0
	for _, namespace := range namespaces {
		most = max(most, demands[namespace])
	}
	return most
}

// own is the part of a policy about addresses, nodes and pods of its own namespace.
func (p *policyState) own() part { return part{true, p.Namespace} }

// aboutPods returns only the parts of the clause that depend on pods. For any address, only named ports depend on them.
func (r Clause) aboutPods() Clause {
	if r.Any {
		r.AnyPort = false
		r.Ports = slices.DeleteFunc(slices.Clone(r.Ports), func(p Port) bool { return p.Name == "" })
	}
	r.Any = false
	r.Peers = slices.DeleteFunc(slices.Clone(r.Peers), func(p Peer) bool { return p.Pods == nil })
	return r
}
