package policy

import (
	"cmp"
	"maps"
	"slices"
)

// Change is a pod whose lists a compilation changed.
type Change struct {
	ID
	Gone       bool             // the pod was deleted
	Interfaces map[string]Lists // all interfaces of the pod with lists, by name
}

func compareIDs(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// CompileNext compiles one pod with rules that may differ, and reports whether they do. Namespaces take turns. some is
// false if there is no such pod.
func (e *Engine) CompileNext() (c Change, changed, some bool) {
	e.policies.settleAll()
	e.budget.divide()
	if id, some := e.backlog.takeGone(e.cluster.pod); some {
		return Change{ID: id, Gone: true}, true, true
	}
	next := e.backlog.next()
	if next == nil {
		if e.budget.rest() {
			return e.CompileNext()
		}
		return Change{}, false, false
	}
	c, changed = e.compileDirty(next)
	return c, changed, true
}

// CompilePod compiles a pod if its rules may differ, and reports whether they do. Other pods are left to CompileNext.
func (e *Engine) CompilePod(id ID) (c Change, changed bool) {
	e.policies.settle(id.Namespace)
	e.budget.divide()
	p := e.cluster.pod(id)
	if p == nil || !e.backlog.isDirty(p) {
		return Change{}, false
	}
	return e.compileDirty(p)
}

// IsDirty reports whether the rules of a pod may differ from those compiled last.
func (e *Engine) IsDirty(id ID) bool {
	p := e.cluster.pod(id)
	return p != nil && e.backlog.isDirty(p)
}

func (e *Engine) compileDirty(p *podState) (c Change, changed bool) {
	isAgain := e.backlog.take(p)
	demanded := p.demanded
	p.demanded = nil
	now := e.compilePod(p)
	e.budget.undemand(demanded)
	p.compiled = true
	was := p.lists
	changed = isAgain || !maps.Equal(now, was)
	p.lists = now
	for _, lists := range was { // the lists of now are in use, so those that stay are not dropped
		e.budget.release(lists)
	}
	return Change{ID: p.ID, Interfaces: maps.Clone(now)}, changed
}

// compilePod compiles the interfaces of a pod, and counts itself as a user of the lists.
func (e *Engine) compilePod(p *podState) map[string]Lists {
	now := make(map[string]Lists)
	p.excess = nil
	e.budget.unstarve(p)
	if !p.Local {
		return now
	}
	for i := range p.Interfaces {
		e.work.Interfaces++
		of := e.compileWithin(p, &p.Interfaces[i])
		if of == nil {
			continue
		}
		if of.services.key != "" {
			e.budget.demand(p, of.services)
		}
		now[p.Interfaces[i].Name] = Lists{e.budget.share(p, of, Ingress), e.budget.share(p, of, Egress)}
		p.excess = append(p.excess, of.excess...)
	}
	return now
}

// compileWithin compiles an interface. If its namespace has not enough rules left on the node, it is starved.
func (e *Engine) compileWithin(p *podState, i *Interface) *compiled {
	of := e.compile(p, i, false)
	if of == nil {
		return nil
	}
	left := e.budget.namespaceLimit() - e.budget.own[p.Namespace] + p.ownAlone()
	if of.own[Ingress]+of.own[Egress] <= left {
		return of
	}
	needs := 0 // without the lists that other pods have, too
	lacks := make(lacking)
	for d, rules := range of.rules {
		if of.own[d] == 0 {
			continue
		}
		name := nameOf(rules)
		lacks[name] = of.own[d]
		if l := e.budget.lists[name]; l == nil || l.users == 1 && p.has(l) {
			needs += of.own[d]
		}
	}
	if needs <= left {
		return of
	}
	if p.starved == nil {
		p.starved = make(map[string]lacking)
	}
	p.starved[i.Name] = lacks
	e.budget.isUndivided = true
	return e.compile(p, i, true)
}

// has reports whether a pod has a list.
func (p *podState) has(list *List) bool {
	for _, lists := range p.lists {
		if slices.Contains(lists[:], list) {
			return true
		}
	}
	return false
}

// ownAlone returns the number of rules of the namespace's policies in lists that no other pod has. They end when the
// pod gets others.
func (p *podState) ownAlone() int {
	n := 0
	for _, lists := range p.lists {
		for _, l := range lists {
			if l.users == 1 {
				n += l.own
			}
		}
	}
	return n
}

// ListsOf returns the lists of a local pod as compiled last, by interface; false: the engine does not know the pod, or
// has not compiled it yet.
func (e *Engine) ListsOf(id ID) (map[string]Lists, bool) {
	p := e.cluster.pod(id)
	if p == nil || !p.compiled {
		return nil, false
	}
	return maps.Clone(p.lists), true
}
