package policy

// Pods with other rules have lists of their own, so what is within the limits of a list or of a namespace may still be too much for a node:
// many namespaces with many rules each, or rules about a large Service in each of a hundred lists. The node has a limit for each of both. As long as
// what lists need fits, the limits of a list or namespace apply. Else these are halved until what remains fits: who needs little is not
// affected.

// claim is a demand with its limit.
type claim struct{ demand, limit int }

// halvings returns how often the limits are halved so that the demands, each cut to its limit, are at most the total.
func halvings(claims []claim, total int) uint {
	for n := uint(0); ; n++ {
		sum, isZero := 0, true
		for _, c := range claims {
			sum += min(c.demand, c.limit>>n)
			isZero = isZero && c.limit>>n == 0
		}
		if sum <= total || isZero {
			return n
		}
	}
}

// namespaceLimit returns the limit of rules of the policies of a namespace.
func (e *Engine) namespaceLimit() int { return e.limits.Node >> e.halved.own }

// servicesLimit returns the limit of rules of Services in a list.
func (e *Engine) servicesLimit() int { return e.limits.Services >> e.halved.services }

// closedLimit returns the limit of prefixes in a list at which Services are denied. Two are the least with which addresses are denied by namespace.
func (e *Engine) closedLimit() int {
	return max(min(2, e.limits.Closed), e.limits.Closed>>e.halved.services)
}

// halved says how often the limits are halved.
type halved struct {
	own, services uint
	raises        int // since all pods were compiled
}

// maxRaises is how often limits are raised at most until all pods are compiled. They are lowered any number of times: so this ends, although what the
// policies of a namespace need depends on the rules about Services and the other way round.
const maxRaises = 32

// set replaces a number, and reports whether it is another one.
func (h *halved) set(was *uint, is uint) bool {
	isRaised := is < *was
	if is == *was || isRaised && h.raises == maxRaises {
		return false
	}
	if isRaised {
		h.raises++
	}
	*was = is
	return true
}

// divide decides how often limits are halved, and marks the pods whose rules that changes.
func (e *Engine) divide() {
	if !e.isUndivided {
		return
	}
	e.isUndivided = false
	if e.halved.set(&e.halved.own, halvings(e.ownClaims(), e.limits.AllNamespaces)) {
		for name, ns := range e.namespaces {
			for _, p := range ns.pods {
				if len(p.starved) > 0 || e.own[name] > e.namespaceLimit() {
					e.touch(p)
				}
			}
		}
	}
	if e.halved.set(&e.halved.services, halvings(e.serviceClaims(), e.limits.AllServices)) {
		if e.plan != nil {
			clear(e.plan.made)
		}
		for _, ns := range e.namespaces {
			for _, p := range ns.pods {
				if len(p.lists) > 0 {
					e.touch(p)
				}
			}
		}
	}
}

// ownClaims returns what the policies of each namespace need, also the lists that starved pods do not have.
func (e *Engine) ownClaims() []claim {
	var claims []claim
	for name, ns := range e.namespaces {
		lacks := make(lacking)
		for _, p := range ns.pods {
			for _, of := range p.starved {
				lacks.add(of)
			}
		}
		demand := e.own[name]
		for list, rules := range lacks {
			if e.lists[list] == nil {
				demand += rules
			}
		}
		claims = append(claims, claim{demand, e.limits.Node})
	}
	return claims
}

// lacking are lists that an interface does not have, by name, and the number of rules of the namespace's policies in them.
type lacking map[string]int

// add adds other lists. The policies of two pods may have other numbers of rules although the lists are equal: the larger number counts, so that the
// order of pods does not matter.
func (l lacking) add(other lacking) {
	for list, rules := range other {
		l[list] = max(l[list], rules)
	}
}

// serviceDemand is what Services need in a list without the limits of the node. Lists with the same key need the same. The content of a list is no
// key: with lower limits lists become alike.
type serviceDemand struct {
	key           string
	rules, denied int // denied are prefixes
}

type sharedDemand struct {
	serviceDemand
	users int
}

// demand counts a pod as one that has a demand.
func (e *Engine) demand(p *podState, d serviceDemand) {
	shared := e.demands[d.key]
	if shared == nil {
		shared = &sharedDemand{}
		e.demands[d.key] = shared
	}
	shared.users++
	e.isUndivided = e.isUndivided || shared.serviceDemand != d
	shared.serviceDemand = d
	p.demanded = append(p.demanded, d.key)
}

// undemand ends demands of a pod.
func (e *Engine) undemand(keys []string) {
	for _, key := range keys {
		shared := e.demands[key]
		if shared.users--; shared.users == 0 {
			delete(e.demands, key)
			e.isUndivided = true
		}
	}
}

func (e *Engine) serviceClaims() []claim {
	var claims []claim
	for _, d := range e.demands {
		claims = append(claims, claim{d.rules, e.limits.Services}, claim{d.denied, e.limits.Closed})
	}
	return claims
}
