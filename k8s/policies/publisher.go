package policies

import "github.com/weftnet/weft/policy"

// publisher says which pods of this node have rules that the event loop does not know yet.
type publisher struct {
	attached attachments
	pending  pending
	untold   map[policy.ID]bool // pending when they are compiled, whatever their rules
	changed  chan struct{}      // receives a token when a pod is pending
}

func newPublisher(attached attachments) *publisher {
	return &publisher{
		attached: attached,
		pending:  make(pending),
		untold:   make(map[policy.ID]bool),
		changed:  make(chan struct{}, 1),
	}
}

// opened notes that a pod is not closed any more once it is compiled.
func (p *publisher) opened(id policy.ID) {
	if p.attached[id] != nil {
		p.untold[id] = true
	}
}

// closed notes that a pod is closed from now on.
func (p *publisher) closed(id policy.ID) {
	if p.attached[id] != nil {
		p.pending.add(id)
	}
}

// compiled notes that a pod was compiled.
func (p *publisher) compiled(id policy.ID, changed bool) {
	if p.attached[id] != nil && (changed || p.untold[id]) {
		p.pending.add(id)
	}
	delete(p.untold, id)
}

// forget is for a pod that the event loop knows the rules of, or that it does not know.
func (p *publisher) forget(id policy.ID) {
	delete(p.pending, id)
	delete(p.untold, id)
}

// take returns the rules for the next event. If there are more, it announces them.
func (p *publisher) take(rulesOf func(policy.ID) map[string]policy.Lists) map[string]map[string]policy.Lists {
	sizes := make(map[policy.ID]int, len(p.pending))
	for id := range p.pending {
		sizes[id] = sizeOf(rulesOf(id))
	}
	now := p.pending.take(sizes)
	changed := make(map[string]map[string]policy.Lists, len(now))
	for _, id := range now {
		changed[id.String()] = rulesOf(id)
	}
	p.announce()
	return changed
}

// announce wakes the reader of changed if pods are pending.
func (p *publisher) announce() {
	if len(p.pending) > 0 {
		poke(p.changed)
	}
}

// sizeOf returns the number of rules in the dataplane for lists, of which no other pod may have one.
func sizeOf(rules map[string]policy.Lists) int {
	n := 0
	for _, both := range rules {
		for _, l := range both {
			if l != nil {
				n += l.Size(false)
			}
		}
	}
	return n
}
