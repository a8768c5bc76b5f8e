package policy

import "slices"

// policyTable has the policies. Those of a namespace that has too many wide selectors are left out.
type policyTable struct {
	membership *membership
	backlog    *backlog
	limits     *Limits

	byRef map[Ref]*policyState
	wide  wideCounts
}

type policyState struct {
	Policy
	subject   *group
	peers     map[string]*group // by the key of their selector
	efforts   [2]*effort        // by direction; nil: not counted yet
	selectors int               // of peers, see hasTooManySelectors
	wide      []string          // the keys of those that select pods of several namespaces
	isCrowded bool              // its namespace has too many of these
	nodes     bool              // has peers by the labels of nodes
	clients   bool              // permits or denies connections from addresses
}

func newPolicyState(p Policy) *policyState {
	is := &policyState{Policy: p, peers: make(map[string]*group)}
	all := make(map[string]*Selector)
	for _, d := range []Direction{Ingress, Egress} {
		for _, peer := range p.peersIn(d) {
			is.nodes = is.nodes || peer.Nodes != nil
			is.clients = is.clients || d == Ingress && len(peer.Prefixes) > 0
			if peer.Pods != nil {
				all[peer.Pods.key] = peer.Pods
			}
		}
	}
	for key, s := range all {
		is.selectors += s.weight()
		if p.Namespace != "" && s.Namespace == "" {
			is.wide = append(is.wide, key)
		}
	}
	return is
}

func newPolicyTable(m *membership, l *Limits) policyTable {
	return policyTable{
		membership: m,
		backlog:    m.backlog,
		limits:     l,
		byRef:      make(map[Ref]*policyState),
		wide: wideCounts{
			namespaces: make(map[string]*wideSelectors),
			unsettled:  make(map[string]struct{}),
		},
	}
}

// set adds a policy or replaces it.
func (t *policyTable) set(p Policy) {
	was := t.byRef[p.Ref]
	is := newPolicyState(p)
	is.Networks = slices.Sorted(slices.Values(p.Networks))
	is.subject = t.membership.use(p.Subject)
	is.subject.subjects[is] = struct{}{}
	t.byRef[p.Ref] = is
	if was != nil {
		t.wide.remove(was)
	}
	t.wide.add(is, t.limits.Selectors)
	if !is.hasTooManySelectors() {
		t.membership.usePeers(is)
	}
	t.backlog.invalidate(is)
	if was != nil {
		t.disuse(was)
	}
}

// remove removes a policy. An unknown policy is no error.
func (t *policyTable) remove(id Ref) {
	if p := t.byRef[id]; p != nil {
		delete(t.byRef, id)
		t.wide.remove(p)
		t.disuse(p)
	}
}

func (t *policyTable) disuse(p *policyState) {
	t.backlog.invalidate(p)
	delete(p.subject.subjects, p)
	t.membership.disuse(p.subject)
	t.membership.disusePeers(p)
}

// settleAll is settle for all namespaces.
func (t *policyTable) settleAll() {
	for namespace := range t.wide.unsettled {
		t.settle(namespace)
	}
}

// settle leaves out the policies of a namespace that have too many wide selectors together, and uses the others. A pod
// is compiled after it.
func (t *policyTable) settle(namespace string) {
	t.wide.choose(namespace, t.limits.Selectors, t.setCrowded)
}

// setCrowded leaves a policy out, or uses it again.
func (t *policyTable) setCrowded(p *policyState, isCrowded bool) {
	if p.isCrowded == isCrowded {
		return
	}
	p.isCrowded = isCrowded
	t.membership.disusePeers(p)
	if !isCrowded {
		t.membership.usePeers(p)
	}
	t.backlog.invalidate(p)
}

// nodesChanged marks the policies that select nodes as peers.
func (t *policyTable) nodesChanged() {
	for _, p := range t.byRef {
		if p.nodes {
			t.backlog.invalidate(p)
		}
	}
}
