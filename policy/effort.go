package policy

import (
	"cmp"
	"maps"
	"slices"
)

// effort is the number of addresses and ports that are read to resolve a policy in one direction, at most. It is known
// without reading them.
type effort struct {
	fixed    int            // for parts that do not depend on pods
	readings map[*group]int // how often the members of a selector of peers are read
	named    map[string]int // in ingress: how often the subject's ports of a name are read
}

// subject is an interface of a local pod, in one direction: the list under compilation is for its packets.
type subject struct {
	pod       *podState
	nic       *Interface
	direction Direction
}

// isGuarded reports whether the network of the interface may permit packets from the pod by protocol.
func (s *subject) isGuarded() bool { return s.direction == Egress && !s.nic.Main }

func (s *subject) size(r *Rule) int { return r.Size(s.isGuarded()) }

// reading says which peers of the subject's policies are read, within the limit of effort.
type reading struct {
	subject
	cluster *cluster
	tallies tallies
	limit   int // of the effort

	unread  *cutoffs // which pods of other namespaces are not read as peers; nil: all are read
	spreads map[*group]*spread
	peers   map[*policyState]*peers
}

// effortOf returns the effort for a policy in one direction.
func (rd *reading) effortOf(policy *policyState, d Direction) *effort {
	if policy.hasTooManySelectors() {
		return &effort{fixed: rd.limit + policy.selectors}
	}
	if policy.efforts[d] != nil {
		return policy.efforts[d]
	}
	of := &effort{fixed: 1, readings: make(map[*group]int), named: make(map[string]int)}
	for _, r := range policy.Rules[d] {
		of.fixed += 1 + len(r.Ports)
		readings := 1 // of peers: named ports of egress rules read them again
		for _, p := range r.Ports {
			switch {
			case p.Name == "":
			case d == Egress:
				readings++
			default:
				of.named[p.Name]++
			}
		}
		for _, peer := range r.Peers {
			switch {
			case peer.Pods != nil:
				of.fixed += readings
				of.readings[policy.peers[peer.Pods.key]] += readings
			case peer.Nodes != nil:
				of.fixed += 1 + len(rd.cluster.nodes)
			case d == Ingress:
				of.fixed += len(peer.Prefixes) * (1 + len(rd.cluster.clients.pods))
			default:
				of.fixed += len(peer.Prefixes)
			}
		}
	}
	policy.efforts[d] = of
	return of
}

// ofNamespace returns the effort without pods of other namespaces.
func (f *effort) ofNamespace(namespace string, subject *podState, tallies tallies) int {
	n := f.fixed
	for g, readings := range f.readings {
		n += readings * tallies.of(g).byNamespace[namespace]
	}
	for name, readings := range f.named {
		n += readings * subject.countNamed(name)
	}
	return n
}

// ofOthers returns the effort for the pods of other namespaces.
func (f *effort) ofOthers(namespace string, tallies tallies) int {
	n := 0
	for g, readings := range f.readings {
		of := tallies.of(g)
		n += readings * (of.all - of.byNamespace[namespace])
	}
	return n
}

// effortFor returns the whole effort for a policy of the subject.
func (rd *reading) effortFor(policy *policyState) int {
	of := rd.effortOf(policy, rd.direction)
	return of.ofNamespace(policy.Namespace, rd.pod, rd.tallies) + of.ofOthers(policy.Namespace, rd.tallies)
}

// divide returns the policies of a namespace with peers that are read. If all of them need more than the limit,
// they are first compared by their need without pods of other namespaces, and the smallest ones are read. Each other
// namespace then has a fair share of the rest, in which the smallest policies read its pods.
func (rd *reading) divide(policies []*policyState, o *omissions) []*policyState {
	own := make([]int, len(policies))
	sum := 0
	for n, policy := range policies {
		of := rd.effortOf(policy, rd.direction)
		own[n] = of.ofNamespace(policy.Namespace, rd.pod, rd.tallies)
		sum += own[n] + of.ofOthers(policy.Namespace, rd.tallies)
	}
	if sum <= rd.limit {
		return policies
	}
	var read []*policyState
	left := rd.limit
	for n, fits := range atMost(own, rd.limit) {
		if !fits {
			o.leaveOut(policies[n], own[n], rd.limit, unitAddresses)
			continue
		}
		read = append(read, policies[n])
		left -= own[n]
	}
	demands := rd.foreignEffort(read)
	share := fairShare(slices.Collect(maps.Values(demands)), left)
	maps.DeleteFunc(demands, func(_ string, demand int) bool { return demand <= share })
	rd.unread = rd.cutNamespaces(read, slices.Collect(maps.Keys(demands)), share)
	for _, policy := range read {
		if unread := rd.unreadPeers(policy); len(unread) > 0 {
			o.exclude(policy, some(unread), "addresses", Excess{
				Size:  largest(unread, demands),
				Limit: share,
				Unit:  unitAddresses,
			})
		}
	}
	return read
}

// foreignEffort returns the effort that policies need for the pods of each other namespace.
func (rd *reading) foreignEffort(policies []*policyState) map[string]int {
	readings := make(map[*group]int) // policies share selectors
	for _, policy := range policies {
		for g, n := range rd.effortOf(policy, rd.direction).readings {
			readings[g] += n
		}
	}
	demands := make(map[string]int)
	for g, n := range readings {
		for namespace, members := range rd.tallies.of(g).byNamespace {
			if namespace != rd.pod.Namespace {
				demands[namespace] += n * members
			}
		}
	}
	return demands
}

// cutoffs say which policies read the pods of namespaces that need more than their share.
type cutoffs struct {
	ranks map[*policyState]int // the smallest one has the rank 0
	at    map[string]*cutoff   // by namespace
}

// cutoff is the rank of the first policy that does not read the pods of a namespace.
type cutoff struct {
	rank   int
	isRead bool // by a policy before
	left   int  // of the share
}

// cutNamespaces divides the share of each namespace. The work is bounded by the shares and by the number of selectors
// and namespaces.
func (rd *reading) cutNamespaces(policies []*policyState, namespaces []string, share int) *cutoffs {
	if len(namespaces) == 0 {
		return nil
	}
	order := slices.Clone(policies)
	slices.SortStableFunc(order, func(a, b *policyState) int { return cmp.Compare(rd.effortFor(a), rd.effortFor(b)) })
	all := &cutoffs{ranks: make(map[*policyState]int, len(order)), at: make(map[string]*cutoff)}
	for _, namespace := range namespaces {
		all.at[namespace] = &cutoff{rank: len(order), left: share}
	}
	isCut := func(namespace string) bool { return all.at[namespace].rank < len(order) }
	open := make(map[*group][]string)
	for rank, policy := range order {
		all.ranks[policy] = rank
		demands := make(map[string]int)
		for g, readings := range rd.effortOf(policy, rd.direction).readings {
			members := rd.tallies.of(g).byNamespace
			if _, known := open[g]; !known {
				open[g] = slices.DeleteFunc(slices.Clone(namespaces), func(namespace string) bool {
					return members[namespace] == 0
				})
			}
			open[g] = slices.DeleteFunc(open[g], isCut)
			for _, namespace := range open[g] {
				demands[namespace] += readings * members[namespace]
			}
		}
		for namespace, demand := range demands {
			of := all.at[namespace]
			if demand > of.left {
				of.rank = rank
				continue
			}
			of.left -= demand
			of.isRead = true
		}
	}
	return all
}

// isRead reports whether a policy reads the pods of a namespace.
func (k *cutoffs) isRead(p *policyState, namespace string) bool {
	if k == nil {
		return true
	}
	at, isCut := k.at[namespace]
	return !isCut || k.ranks[p] < at.rank
}
