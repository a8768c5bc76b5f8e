package policy

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// maxSelectors is the number of different selectors of peers that a policy may have: each is compared with all pods,
// and with each new one.
const maxSelectors = 128

// wideSelectors are the selectors of peers in the policies of a namespace that select pods of several namespaces. The
// engine notes each pod that such a selector selects, so that the memory of all of them grows with the product of
// selectors and pods of the cluster. Selectors of the policies' own namespace grow with its own pods.
type wideSelectors struct {
	policies map[*policyState]struct{} // that have some
	sum      int                       // of the selectors of each policy
	crowded  int                       // number of policies that are left out
}

// wideCounts counts the wide selectors of all namespaces.
type wideCounts struct {
	namespaces map[string]*wideSelectors
	unsettled  map[string]struct{} // namespaces in which other policies may have to be left out
}

// requirementsOfWeight is the number of requirements for which a selector counts once.
const requirementsOfWeight = 8

// weight returns as how many selectors a selector counts: each requirement may be compared with all pods.
func (s *Selector) weight() int {
	n := 0
	for _, of := range []labels.Selector{s.Namespaces, s.Pods} {
		if of != nil {
			requirements, _ := of.Requirements()
			n += len(requirements)
		}
	}
	return max(1, (n+requirementsOfWeight-1)/requirementsOfWeight)
}

// peersIn lists the peers of all rules of a direction.
func (p *Policy) peersIn(d Direction) []Peer {
	var all []Peer
	for _, r := range p.Rules[d] {
		all = append(all, r.Peers...)
	}
	return all
}

// hasTooManySelectors reports whether a policy is left out, so that its peers are not compared with all pods.
func (p *policyState) hasTooManySelectors() bool { return p.selectors > maxSelectors || p.isCrowded }

// add counts the wide selectors of a policy that is new. If its namespace has more than limit, the policy is left out
// until choose decides.
func (w *wideCounts) add(p *policyState, limit int) {
	if len(p.wide) == 0 || p.selectors > maxSelectors {
		return
	}
	ns := w.namespaces[p.Namespace]
	if ns == nil {
		ns = &wideSelectors{policies: make(map[*policyState]struct{})}
		w.namespaces[p.Namespace] = ns
	}
	ns.policies[p] = struct{}{}
	ns.sum += len(p.wide)
	if ns.crowded > 0 || ns.sum > limit {
		p.isCrowded = true
		ns.crowded++
		w.unsettled[p.Namespace] = struct{}{}
	}
}

// remove does not count a policy any more. Others that were left out may have room then.
func (w *wideCounts) remove(p *policyState) {
	ns := w.namespaces[p.Namespace]
	if ns == nil {
		return
	}
	if _, counted := ns.policies[p]; !counted {
		return
	}
	delete(ns.policies, p)
	ns.sum -= len(p.wide)
	if ns.crowded > 0 {
		w.unsettled[p.Namespace] = struct{}{}
	}
	if p.isCrowded {
		ns.crowded--
	}
	if len(ns.policies) == 0 {
		delete(w.namespaces, p.Namespace)
	}
}

// choose decides which policies of an unsettled namespace are left out because they have more than limit wide selectors
// together: the ones with most of them. It calls decide for each policy. It decides by the policies alone, so all nodes
// decide the same.
func (w *wideCounts) choose(namespace string, limit int, decide func(p *policyState, isCrowded bool)) {
	if _, is := w.unsettled[namespace]; !is {
		return
	}
	delete(w.unsettled, namespace)
	ns := w.namespaces[namespace]
	if ns == nil {
		return
	}
	order := slices.SortedFunc(maps.Keys(ns.policies), func(a, b *policyState) int {
		return cmp.Or(cmp.Compare(len(a.wide), len(b.wide)), comparePolicies(a, b))
	})
	chosen := make(map[string]struct{})
	ns.crowded = 0
	for _, p := range order {
		isCrowded := len(chosen)+p.wideBeside(chosen) > limit
		if isCrowded {
			ns.crowded++
		} else {
			p.addWide(chosen)
		}
		decide(p, isCrowded)
	}
}

// wideBeside returns the number of wide selectors of a policy that are not among the chosen ones.
func (p *policyState) wideBeside(chosen map[string]struct{}) int {
	n := 0
	for _, key := range p.wide {
		if _, has := chosen[key]; !has {
			n++
		}
	}
	return n
}

func (p *policyState) addWide(chosen map[string]struct{}) {
	for _, key := range p.wide {
		chosen[key] = struct{}{}
	}
}
