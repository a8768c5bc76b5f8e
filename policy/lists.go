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
	e.settleAll()
	e.divide()
	for id := range e.gone {
		if p := e.pod(id); p != nil {
			if _, isDirty := e.dirty[p]; isDirty {
				continue // a pod of the name is there again: the change is its rules
			}
		}
		delete(e.gone, id)
		return Change{ID: id, Gone: true}, true, true
	}
	var next *podState
	for p := range e.dirty {
		if next == nil ||
			cmp.Or(cmp.Compare(e.turns[p.Namespace], e.turns[next.Namespace]), compareIDs(p.ID, next.ID)) < 0 {
			next = p
		}
	}
	if next == nil {
		clear(e.turns)
		e.isUndivided = e.isUndivided || e.halved.isPutOff
		if e.halved.rest() {
			return e.CompileNext()
		}
		return Change{}, false, false
	}
	e.turn++
	e.turns[next.Namespace] = e.turn
	c, changed = e.compileDirty(next)
	return c, changed, true
}

// CompilePod compiles a pod if its rules may differ, and reports whether they do. Other pods are left to CompileNext.
func (e *Engine) CompilePod(id ID) (c Change, changed bool) {
	e.settle(id.Namespace)
	e.divide()
	p := e.pod(id)
	if p == nil {
		return Change{}, false
	}
	if _, isDirty := e.dirty[p]; !isDirty {
		return Change{}, false
	}
	return e.compileDirty(p)
}

// IsDirty reports whether the rules of a pod may differ from those compiled last.
func (e *Engine) IsDirty(id ID) bool {
	p := e.pod(id)
	if p == nil {
		return false
	}
	_, is := e.dirty[p]
	return is
}

func (e *Engine) compileDirty(p *podState) (c Change, changed bool) {
	delete(e.dirty, p)
	_, again := e.gone[p.ID]
	delete(e.gone, p.ID)
	demanded := p.demanded
	p.demanded = nil
	now := e.compilePod(p)
	e.undemand(demanded)
	p.compiled = true
	was := p.lists
	changed = again || !maps.Equal(now, was)
	p.lists = now
	for _, lists := range was { // the lists of now are in use, so those that stay are not dropped
		e.release(lists)
	}
	return Change{ID: p.ID, Interfaces: maps.Clone(now)}, changed
}

// compilePod compiles the interfaces of a pod, and counts itself as a user of the lists.
func (e *Engine) compilePod(p *podState) map[string]Lists {
	now := make(map[string]Lists)
	p.excess = nil
	e.unstarve(p)
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
			e.demand(p, of.services)
		}
		now[p.Interfaces[i].Name] = Lists{e.share(p, of, Ingress), e.share(p, of, Egress)}
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
	left := e.namespaceLimit() - e.own[p.Namespace] + p.ownAlone()
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
		if l := e.lists[name]; l == nil || l.users == 1 && p.has(l) {
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
	e.isUndivided = true
	return e.compile(p, i, true)
}

// unstarve clears the record of the rules that a pod lacks: the rest may be within the limits of the node.
func (e *Engine) unstarve(p *podState) {
	e.isUndivided = e.isUndivided || len(p.starved) > 0
	p.starved = nil
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

// share returns the list with the rules of a direction.
func (e *Engine) share(p *podState, of *compiled, d Direction) *List {
	rules := of.rules[d]
	name := nameOf(rules)
	l := e.lists[name]
	if l == nil {
		l = &List{Name: name, Rules: slices.Clone(rules), namespace: p.Namespace, own: of.own[d]}
		e.lists[name] = l
		e.own[l.namespace] += l.own
		e.isUndivided = true
	}
	l.users++
	return l
}

func (e *Engine) release(lists Lists) {
	for _, l := range lists {
		if l == nil {
			continue
		}
		if l.users--; l.users == 0 {
			delete(e.lists, l.Name)
			e.isUndivided = true
			e.giveBack(l)
		}
	}
}

// giveBack has the starved pods of a namespace compiled again when a list ends. Others keep their rules, so this ends.
func (e *Engine) giveBack(l *List) {
	if l.own == 0 {
		return
	}
	e.own[l.namespace] -= l.own
	if e.own[l.namespace] == 0 {
		delete(e.own, l.namespace)
	}
	ns := e.namespaces[l.namespace]
	if ns == nil || e.own[l.namespace] >= e.namespaceLimit() {
		return
	}
	for _, other := range ns.pods {
		if len(other.starved) > 0 {
			e.dirty[other] = struct{}{}
		}
	}
}

// ListsOf returns the lists of a local pod as compiled last, by interface; false: the engine does not know the pod, or
// has not compiled it yet.
func (e *Engine) ListsOf(id ID) (map[string]Lists, bool) {
	p := e.pod(id)
	if p == nil || !p.compiled {
		return nil, false
	}
	return maps.Clone(p.lists), true
}
