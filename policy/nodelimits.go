package policy

import "maps"

// Pods with other rules have lists of their own, so rules within the limits of a list or of a namespace may still be
// too many for a node: many namespaces with many rules each, or rules about a large Service in each of a hundred lists.
// The node has a limit for each of both. As long as the lists fit, the limits of a list or namespace apply. Otherwise
// these are halved until the rest fits. Namespaces and lists with few rules are not affected.

// claim is a demand with its limit. The demand is that with the limit as it is, with half of it, and so on; the last
// one counts for all that follow.
type claim struct {
	demands []int
	limit   int
}

// at returns the number in use if the limit is halved n times.
func (c *claim) at(n uint) int {
	return min(c.demands[min(n, uint(len(c.demands)-1))], c.limit>>n)
}

// halvings returns how often the limits are halved so that the demands, each cut to its limit, are at most the total.
func halvings(claims []claim, total int) uint {
	for n := uint(0); ; n++ {
		sum := 0
		isZero := true
		for i := range claims {
			sum += claims[i].at(n)
			isZero = isZero && claims[i].limit>>n == 0
		}
		if sum <= total || isZero {
			return n
		}
	}
}

// namespaceLimit returns the limit of rules of the policies of a namespace.
func (e *Engine) namespaceLimit() int { return e.limits.Node >> e.halved.own }

// servicesLimit returns the limit of rules of Services in a list of pods of a namespace.
func (e *Engine) servicesLimit(namespace string) int {
	return e.limits.Services >> e.halved.services[namespace]
}

// closedLimit returns the limit of prefixes in a list of pods of a namespace at which Services are denied. Two are the
// least with which addresses are denied by namespace.
func (e *Engine) closedLimit(namespace string) int {
	return max(min(2, e.limits.Closed), e.limits.Closed>>e.halved.services[namespace])
}

// halved says how often the limits are halved.
type halved struct {
	own      uint
	services map[string]uint // by the namespace of the pods: namespaces with pods that need most have less
	isRaised bool            // by the current division
	raises   int             // divisions that raised limits since all pods were compiled
	isPutOff bool            // a raise that was one too many
	isAgain  bool            // a raise that was put off is being tried
}

// maxRaises is how many divisions raise limits at most until all pods are compiled. They are lowered any number of
// times: so this ends, although the need of a namespace's policies depends on the rules about Services and the other
// way round.
const maxRaises = 32

// allows reports whether a number may be replaced by another one.
func (h *halved) allows(was, is uint) bool {
	isRaised := is < was
	if is == was {
		return false
	}
	if isRaised && h.raises == maxRaises {
		h.isPutOff = true
		return false
	}
	h.isRaised = h.isRaised || isRaised
	return true
}

// rest is called when all pods are compiled. It reports whether a raise was put off that may be tried now. That ends:
// a raise that is put off then waits for the next compilation.
func (h *halved) rest() bool {
	h.isAgain = h.isPutOff && !h.isAgain
	h.raises = 0
	h.isPutOff = false
	return h.isAgain
}

// divide decides how often limits are halved, and marks the pods with rules that this changes.
func (e *Engine) divide() {
	if !e.isUndivided {
		return
	}
	e.isUndivided = false
	e.halved.isRaised = false
	if own := halvings(e.ownClaims(), e.limits.AllNamespaces); e.halved.allows(e.halved.own, own) {
		e.halved.own = own
		for name, ns := range e.namespaces {
			for _, p := range ns.pods {
				if len(p.starved) > 0 || e.own[name] > e.namespaceLimit() {
					e.touch(p)
				}
			}
		}
	}
	e.divideServices()
	if e.halved.isRaised { // of any number of namespaces
		e.halved.raises++
	}
}

// divideServices gives each namespace a fair share of the rules about Services. Where its lists need more, their limits
// are halved.
func (e *Engine) divideServices() {
	claims := e.serviceClaims()
	totals := make([]int, 0, len(claims))
	for _, of := range claims {
		totals = append(totals, sumOf(of))
	}
	share := fairShare(totals, e.limits.AllServices)
	maps.DeleteFunc(e.halved.services, func(name string, _ uint) bool { return e.namespaces[name] == nil })
	for name, ns := range e.namespaces {
		was := e.halved.services[name]
		is := halvings(claims[name], share)
		if !e.halved.allows(was, is) {
			continue
		}
		e.halved.services[name] = is
		if is == 0 {
			delete(e.halved.services, name)
		}
		for _, p := range ns.pods {
			if len(p.lists) > 0 {
				e.touch(p)
			}
		}
	}
}

// sumOf returns what claims use with the limits as they are.
func sumOf(claims []claim) int {
	n := 0
	for i := range claims {
		n += claims[i].at(0)
	}
	return n
}

// ownClaims returns the claims of the policies of each namespace, also for lists that starved pods lack.
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
		claims = append(claims, claim{[]int{demand}, e.limits.Node})
	}
	return claims
}

// lacking are lists that an interface does not have, by name, and the number of rules of the namespace's policies in
// them.
type lacking map[string]int

// add adds other lists. The policies of two pods may have other numbers of rules although the lists are equal: the
// larger number counts, so that the order of pods does not matter.
func (l lacking) add(other lacking) {
	for list, rules := range other {
		l[list] = max(l[list], rules)
	}
}

// serviceDemand is what Services need in a list without the limits of the node. Lists of a namespace with the same key
// need the same. The content of a list is no key: with lower limits lists become alike.
type serviceDemand struct {
	key    string
	rules  [demandLevels]int // with the limit of a list, half of it, and so on: a Service over the limit needs none
	denied int               // prefixes
}

// demandLevels is for how many halvings of its limit the demand of a list is known.
const demandLevels = 4

type sharedDemand struct {
	serviceDemand
	users int
}

// demandKey is the key of a demand of pods of a namespace.
type demandKey struct{ namespace, key string }

// demand counts a pod as one that has a demand.
func (e *Engine) demand(p *podState, d serviceDemand) {
	k := demandKey{p.Namespace, d.key}
	shared := e.demands[k]
	if shared == nil {
		shared = &sharedDemand{}
		e.demands[k] = shared
	}
	shared.users++
	e.isUndivided = e.isUndivided || shared.serviceDemand != d
	shared.serviceDemand = d
	p.demanded = append(p.demanded, k)
}

// undemand ends demands of a pod.
func (e *Engine) undemand(keys []demandKey) {
	for _, k := range keys {
		shared := e.demands[k]
		if shared.users--; shared.users == 0 {
			delete(e.demands, k)
			e.isUndivided = true
		}
	}
}

// serviceClaims returns the claims of the lists of each namespace for Services.
func (e *Engine) serviceClaims() map[string][]claim {
	all := make(map[string][]claim)
	for k, d := range e.demands {
		all[k.namespace] = append(all[k.namespace], claim{d.rules[:], e.limits.Services}, claim{
			[]int{d.denied}, e.limits.Closed,
		})
	}
	return all
}
