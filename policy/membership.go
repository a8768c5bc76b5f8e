package policy

import "slices"

// membership says which pods the selectors of policies select.
type membership struct {
	cluster *cluster
	backlog *backlog
	work    *Work

	groups  map[string]*group // by the key of their selector
	index   *selectors        // of groups
	tallies tallies           // of groups
}

func newMembership(c *cluster, b *backlog, w *Work) membership {
	return membership{
		cluster: c,
		backlog: b,
		work:    w,
		groups:  make(map[string]*group),
		index:   newSelectors(),
		tallies: make(tallies),
	}
}

// regroup moves a pod to the groups that select it now.
func (m *membership) regroup(p *podState) {
	now := make(map[*group]struct{})
	set := m.cluster.namespaces[p.Namespace].labels
	m.index.candidates(p, set, func(g *group) {
		if _, done := now[g]; done {
			return
		}
		m.work.Matches++
		if g.matches(p, set) {
			now[g] = struct{}{}
		}
	})
	for g := range p.groups {
		if _, still := now[g]; !still {
			m.leave(p, g)
		}
	}
	for g := range now {
		if _, was := p.groups[g]; !was {
			m.join(p, g)
		}
	}
}

func (m *membership) join(p *podState, g *group) {
	m.enter(p, g)
	m.backlog.groupChanged(p, g)
}

// enter makes a pod a member of a group.
func (m *membership) enter(p *podState, g *group) {
	g.members[p] = struct{}{}
	p.groups[g] = struct{}{}
	m.tallies.add(g, p, p.span)
}

func (m *membership) leave(p *podState, g *group) {
	delete(g.members, p)
	delete(p.groups, g)
	m.tallies.add(g, p, -p.span)
	m.backlog.groupChanged(p, g)
}

// use returns the group of a selector.
func (m *membership) use(by Selector) *group {
	if g := m.groups[by.key]; g != nil {
		return g
	}
	g := &group{
		Selector: by,
		members:  make(map[*podState]struct{}),
		subjects: make(map[*policyState]struct{}),
		peers:    make(map[*policyState]struct{}),
	}
	m.groups[by.key] = g
	m.index.add(g)
	for name, ns := range m.cluster.namespaces {
		if by.Namespace != "" && by.Namespace != name {
			continue
		}
		for _, p := range ns.pods {
			m.work.Matches++
			if g.matches(p, ns.labels) {
				m.enter(p, g)
			}
		}
	}
	return g
}

func (m *membership) disuse(g *group) {
	if !g.unused() || m.groups[g.key] != g {
		return
	}
	delete(m.groups, g.key)
	delete(m.tallies, g)
	m.index.remove(g)
	for p := range g.members {
		delete(p.groups, g)
	}
}

// usePeers makes the groups of a policy's peers.
func (m *membership) usePeers(p *policyState) {
	for _, peer := range slices.Concat(p.peersIn(Ingress), p.peersIn(Egress)) {
		if peer.Pods == nil || p.peers[peer.Pods.key] != nil {
			continue
		}
		g := m.use(*peer.Pods)
		g.peers[p] = struct{}{}
		p.peers[peer.Pods.key] = g
	}
}

func (m *membership) disusePeers(p *policyState) {
	for _, g := range p.peers {
		delete(g.peers, p)
		m.disuse(g)
	}
	clear(p.peers)
}

// remove removes a pod from the groups that select it.
func (m *membership) remove(p *podState) {
	for g := range p.groups {
		delete(g.members, p)
		m.tallies.add(g, p, -p.span)
	}
}
