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

// Excess lists the policies and Services that are not applied completely to local pods, as compiled last: once each,
// with the pod for which it is largest, by name.
func (e *Engine) Excess() []Excess {
	by := make(map[string]Excess)
	for p := range e.cluster.pods() {
		for _, x := range p.excess {
			x.Pod = p.ID
			of, known := by[x.Of]
			if !known || cmp.Or(cmp.Compare(of.Size, x.Size), compareIDs(x.Pod, of.Pod)) < 0 {
				by[x.Of] = x
			}
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b Excess) int { return cmp.Compare(a.Of, b.Of) })
}

// ExcessOf lists the policies and Services that are not applied completely to a local pod, as compiled last.
func (e *Engine) ExcessOf(id ID) []Excess {
	if p := e.cluster.pod(id); p != nil {
		return p.excess
	}
	return nil
}
