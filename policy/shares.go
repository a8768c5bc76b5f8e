package policy

import (
	"cmp"
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
func (c *compilation) spreadOf(g *group) *spread {
	if known := c.spreads[g]; known != nil {
		return known
	}
	is := &spread{members: make(map[string][]*podState)}
	var cutAt map[string]*cutoff
	if c.unread != nil {
		cutAt = c.unread.at
	}
	for p := range g.members {
		if of := cutAt[p.Namespace]; of == nil || of.isRead {
			is.members[p.Namespace] = append(is.members[p.Namespace], p)
		}
	}
	for namespace := range cutAt {
		if c.membership.tallies.of(g).byNamespace[namespace] > 0 {
			is.cut = append(is.cut, namespace)
		}
	}
	slices.Sort(is.cut)
	if c.spreads == nil {
		c.spreads = make(map[*group]*spread)
	}
	c.spreads[g] = is
	return is
}

// peers are the peers of a policy in one direction.
type peers struct {
	namespaces []string         // others than the policy's own, by name
	clauses    map[string][]int // with peers in a namespace, by their number
}

// peersOf returns the peers of a policy that are read.
func (c *compilation) peersOf(policy *policyState) *peers {
	if known := c.peers[policy]; known != nil {
		return known
	}
	is := &peers{clauses: make(map[string][]int)}
	for n, r := range policy.Rules[c.direction] {
		for _, peer := range r.Peers {
			if peer.Pods == nil {
				continue
			}
			for namespace := range c.spreadOf(policy.peers[peer.Pods.key]).members {
				of := is.clauses[namespace]
				isNew := len(of) == 0 || of[len(of)-1] != n
				if isNew && namespace != policy.Namespace && c.unread.isRead(policy, namespace) {
					is.clauses[namespace] = append(of, n)
				}
			}
		}
	}
	is.namespaces = slices.Sorted(maps.Keys(is.clauses))
	if c.peers == nil {
		c.peers = make(map[*policyState]*peers)
	}
	c.peers[policy] = is
	return is
}

// unreadPeers lists namespaces of peers of a policy that are not read, by name: no more than an explanation names, and
// one.
func (c *compilation) unreadPeers(policy *policyState) []string {
	if c.unread == nil {
		return nil
	}
	var all []string
	for g := range c.effortOf(policy, c.direction).readings {
		var of []string
		for _, namespace := range c.spreadOf(g).cut {
			if !c.unread.isRead(policy, namespace) {
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

// readRules returns the rules of a policy for all peers that are read.
func (c *compilation) readRules(policy *policyState) []Rule {
	if c.unread == nil {
		return c.rulesFor(policy, part{})
	}
	rules := c.rulesFor(policy, policy.own())
	for _, namespace := range c.peersOf(policy).namespaces {
		rules = append(rules, c.rulesFor(policy, part{true, namespace})...)
	}
	return rules
}

// shared returns rules of policies that need more rules than the limit, or have peers that are not read. The policies
// are first compared by their need without pods of other namespaces, and the smallest ones are applied. The pods of
// each other namespace then have a fair share of the rest. So the pods of one namespace neither displace pods of
// another one nor the policies' own peers. names gets the names of policies that are not applied completely.
func (c *compilation) shared(policies []*policyState, size func(*Rule) int, names map[*policyState]string) []Rule {
	sizes := make([]int, len(policies))
	for n, policy := range policies {
		sizes[n] = sizeOfAll(c.rulesFor(policy, policy.own()), size)
	}
	demands := make(map[string]int) // of other namespaces
	var allowed []Rule
	var fit []*policyState
	for n, fits := range atMost(sizes, c.ownLimit()) {
		policy := policies[n]
		if !fits {
			c.leaveOut(policy, sizes[n], c.ownLimit(), unitRules)
			names[policy] = policy.String() + leftOut
			continue
		}
		fit = append(fit, policy)
		allowed = append(allowed, c.rulesFor(policy, policy.own())...)
		c.own += sizes[n]
		for _, namespace := range c.peersOf(policy).namespaces {
			demands[namespace] += sizeOfAll(c.rulesFor(policy, part{true, namespace}), size)
		}
	}
	share := fairShare(slices.Collect(maps.Values(demands)), c.ownLimit()-c.own)
	for _, policy := range fit {
		var excluded []string
		for _, namespace := range c.peersOf(policy).namespaces {
			if demands[namespace] > share {
				excluded = append(excluded, namespace)
				continue
			}
			rules := c.rulesFor(policy, part{true, namespace})
			allowed = append(allowed, rules...)
			c.own += sizeOfAll(rules, size)
		}
		if len(excluded) > 0 {
			c.exclude(policy, listed(excluded), Excess{
				Size:  largest(excluded, demands),
				Limit: share,
				Unit:  unitRules + " for one of them",
			})
			names[policy] = cmp.Or(names[policy], policy.String()) + " (not for pods of " + listed(excluded) +
				": over the limit of rules)"
		}
	}
	return allowed
}

// exclude reports that a policy permits nothing to or from pods of some namespaces. x has the need of one of them.
func (c *compilation) exclude(policy *policyState, namespaces string, x Excess) {
	x.Of = policy.String()
	x.Effect = effectExcludes + namespaces
	c.excess = append(c.excess, x)
}
