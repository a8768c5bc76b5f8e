package policy

import (
	"maps"
	"slices"
)

// portion are the rules of a policy for a part of its peers.
type portion struct {
	namespace string // of the peers, if it is not the policy's own
	rules     []Rule
}

// portions divides the rules of a policy, which only allow: first what it says about addresses, nodes and pods of its own namespace, then
// the pods of each other namespace, by name.
func (e *Engine) portions(policy *policyState, d Direction, p *podState, i *Interface) []portion {
	key := fragmentKeyOf(policy, d, p, i)
	if done := policy.portions[key]; done != nil {
		return done
	}
	e.work.Fragments++
	members := policy.peersByNamespace(d)
	of := resolver{Engine: e, policy: policy, direction: d, subject: end{pod: p, nic: i}, only: members[policy.Namespace]}
	if of.only == nil {
		of.only = map[*group][]*podState{}
	}
	own := portion{}
	for _, r := range policy.Rules[d] {
		own.rules = append(own.rules, of.resolve(r)...)
	}
	delete(members, policy.Namespace)
	all := []portion{own}
	for _, namespace := range slices.Sorted(maps.Keys(members)) {
		of.only = members[namespace]
		part := portion{namespace: namespace}
		for _, r := range policy.Rules[d] {
			part.rules = append(part.rules, of.resolve(r.aboutPods())...)
		}
		all = append(all, part)
	}
	if policy.portions == nil {
		policy.portions = make(map[fragmentKey][]portion)
	}
	policy.portions[key] = all
	return all
}

// peersByNamespace returns the pods that are peers in a direction, by their namespace and by the selector that selects them.
func (p *policyState) peersByNamespace(d Direction) map[string]map[*group][]*podState {
	by := make(map[string]map[*group][]*podState)
	read := make(map[*group]bool)
	for _, r := range p.Rules[d] {
		for _, peer := range r.Peers {
			if peer.Pods == nil || read[p.peers[peer.Pods.key]] {
				continue
			}
			of := p.peers[peer.Pods.key]
			read[of] = true
			for member := range of.members {
				if by[member.Namespace] == nil {
					by[member.Namespace] = make(map[*group][]*podState)
				}
				by[member.Namespace][of] = append(by[member.Namespace][of], member)
			}
		}
	}
	return by
}

// aboutPods returns the clause without what does not depend on pods. For any address, only named ports depend on them.
func (r Clause) aboutPods() Clause {
	if r.Any {
		r.AnyPort = false
		r.Ports = slices.DeleteFunc(slices.Clone(r.Ports), func(p Port) bool { return p.Name == "" })
	}
	r.Any = false
	r.Peers = slices.DeleteFunc(slices.Clone(r.Peers), func(p Peer) bool { return p.Pods == nil })
	return r
}

// shared returns rules of policies that need more rules than the limit. The policies are first compared by what they need without pods of other
// namespaces, and the smallest ones are applied. The pods of each other namespace then have a fair share of the rest. So the pods of one
// namespace neither displace those of another one nor the policies' own peers. names gets the names of policies that are not applied completely.
func (c *compilation) shared(policies []*policyState, size func(*Rule) int, names map[*policyState]string) []Rule {
	portions := make([][]portion, len(policies))
	sizes := make([]int, len(policies))
	for n, policy := range policies {
		portions[n] = c.portions(policy, c.direction, c.pod, c.nic)
		sizes[n] = sizeOfAll(portions[n][0].rules, size)
	}
	fit := atMost(sizes, c.ownLimit())
	demands := make(map[string]int) // of other namespaces
	var allowed []Rule
	for n, policy := range policies {
		if !fit[n] {
			c.leaveOut(policy, sizes[n], c.ownLimit(), unitRules)
			names[policy] = policy.String() + leftOut
			continue
		}
		allowed = append(allowed, portions[n][0].rules...)
		c.own += sizes[n]
		for _, part := range portions[n][1:] {
			demands[part.namespace] += sizeOfAll(part.rules, size)
		}
	}
	share := fairShare(slices.Collect(maps.Values(demands)), c.ownLimit()-c.own)
	for n, policy := range policies {
		if !fit[n] {
			continue
		}
		var excluded []string
		for _, part := range portions[n][1:] {
			if demands[part.namespace] > share {
				excluded = append(excluded, part.namespace)
				continue
			}
			allowed = append(allowed, part.rules...)
			c.own += sizeOfAll(part.rules, size)
		}
		if len(excluded) > 0 {
			c.leaveOutNamespaces(policy, excluded, demands, share)
			names[policy] = policy.String() + " (not for pods of " + listed(excluded) + ": over the limit of rules)"
		}
	}
	return allowed
}

// leaveOutNamespaces reports that a policy permits nothing to or from pods of some namespaces.
func (c *compilation) leaveOutNamespaces(policy *policyState, excluded []string, demands map[string]int, share int) {
	largest := 0
	for _, namespace := range excluded {
		largest = max(largest, demands[namespace])
	}
	c.excess = append(c.excess, Excess{
		Of: policy.String(), Effect: effectExcludes + listed(excluded), Size: largest, Limit: share, Unit: unitRules + " for one of them",
	})
}
