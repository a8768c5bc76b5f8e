package policy

import (
	"maps"
	"slices"
)

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

// budget has the lists of this node's pods, and divides the rules of the node among namespaces.
type budget struct {
	cluster *cluster
	backlog *backlog
	limits  *Limits

	lists       map[string]*List // in use, by name
	own         map[string]int   // rules of the policies of a namespace in these lists
	demands     map[demandKey]*sharedDemand
	halved      halved // limits
	isUndivided bool   // the lists have changed, and limits may have to be halved
}

func newBudget(c *cluster, b *backlog, l *Limits) budget {
	return budget{
		cluster: c,
		backlog: b,
		limits:  l,
		lists:   make(map[string]*List),
		own:     make(map[string]int),
		demands: make(map[demandKey]*sharedDemand), // of Services
		halved:  halved{services: make(map[string]uint)},
	}
}

// namespaceLimit returns the limit of rules of the policies of a namespace.
func (b *budget) namespaceLimit() int { return b.limits.Node >> b.halved.own }

// servicesLimit returns the limit of rules of Services in a list of pods of a namespace.
func (b *budget) servicesLimit(namespace string) int {
	return b.limits.Services >> b.halved.services[namespace]
}

// closedLimit returns the limit of prefixes in a list of pods of a namespace at which Services are denied. Two are the
// least with which addresses are denied by namespace.
func (b *budget) closedLimit(namespace string) int {
	return max(min(2, b.limits.Closed), b.limits.Closed>>b.halved.services[namespace])
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

// rest is called when all pods are compiled. It reports whether limits may be raised now.
func (b *budget) rest() bool {
	b.isUndivided = b.isUndivided || b.halved.isPutOff
	return b.halved.rest()
}

// divide decides how often limits are halved, and marks the pods with rules that this changes.
func (b *budget) divide() {
	if !b.isUndivided {
		return
	}
	b.isUndivided = false
	b.halved.isRaised = false
	if own := halvings(b.ownClaims(), b.limits.AllNamespaces); b.halved.allows(b.halved.own, own) {
		b.halved.own = own
		for name, ns := range b.cluster.namespaces {
			for _, p := range ns.pods {
				if len(p.starved) > 0 || b.own[name] > b.namespaceLimit() {
					b.backlog.touch(p)
				}
			}
		}
	}
	b.divideServices()
	if b.halved.isRaised { // of any number of namespaces
		b.halved.raises++
	}
}

// divideServices gives each namespace a fair share of the rules about Services. Where its lists need more, their limits
// are halved.
func (b *budget) divideServices() {
	claims := b.serviceClaims()
	totals := make([]int, 0, len(claims))
	for _, of := range claims {
		totals = append(totals, sumOf(of))
	}
	share := fairShare(totals, b.limits.AllServices)
	maps.DeleteFunc(b.halved.services, func(name string, _ uint) bool { return b.cluster.namespaces[name] == nil })
	for name, ns := range b.cluster.namespaces {
		was := b.halved.services[name]
		is := halvings(claims[name], share)
		if !b.halved.allows(was, is) {
			continue
		}
		b.halved.services[name] = is
		if is == 0 {
			delete(b.halved.services, name)
		}
		for _, p := range ns.pods {
			if len(p.lists) > 0 {
				b.backlog.touch(p)
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
func (b *budget) ownClaims() []claim {
	var claims []claim
	for name, ns := range b.cluster.namespaces {
		lacks := make(lacking)
		for _, p := range ns.pods {
			for _, of := range p.starved {
				lacks.add(of)
			}
		}
		demand := b.own[name]
		for list, rules := range lacks {
			if b.lists[list] == nil {
				demand += rules
			}
		}
		claims = append(claims, claim{[]int{demand}, b.limits.Node})
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
func (b *budget) demand(p *podState, d serviceDemand) {
	k := demandKey{p.Namespace, d.key}
	shared := b.demands[k]
	if shared == nil {
		shared = &sharedDemand{}
		b.demands[k] = shared
	}
	shared.users++
	b.isUndivided = b.isUndivided || shared.serviceDemand != d
	shared.serviceDemand = d
	p.demanded = append(p.demanded, k)
}

// undemand ends demands of a pod.
func (b *budget) undemand(keys []demandKey) {
	for _, k := range keys {
		shared := b.demands[k]
		if shared.users--; shared.users == 0 {
			delete(b.demands, k)
			b.isUndivided = true
		}
	}
}

// serviceClaims returns the claims of the lists of each namespace for Services.
func (b *budget) serviceClaims() map[string][]claim {
	all := make(map[string][]claim)
	for k, d := range b.demands {
		all[k.namespace] = append(all[k.namespace], claim{d.rules[:], b.limits.Services}, claim{
			[]int{d.denied}, b.limits.Closed,
		})
	}
	return all
}

// share returns the list with the rules of a direction.
func (b *budget) share(p *podState, of *compiled, d Direction) *List {
	rules := of.rules[d]
	name := nameOf(rules)
	l := b.lists[name]
	if l == nil {
		l = &List{Name: name, Rules: slices.Clone(rules), namespace: p.Namespace, own: of.own[d]}
		b.lists[name] = l
		b.own[l.namespace] += l.own
		b.isUndivided = true
	}
	l.users++
	return l
}

func (b *budget) release(lists Lists) {
	for _, l := range lists {
		if l == nil {
			continue
		}
		if l.users--; l.users == 0 {
			delete(b.lists, l.Name)
			b.isUndivided = true
			b.giveBack(l)
		}
	}
}

// giveBack has the starved pods of a namespace compiled again when a list ends. Others keep their rules, so this ends.
func (b *budget) giveBack(l *List) {
	if l.own == 0 {
		return
	}
	b.own[l.namespace] -= l.own
	if b.own[l.namespace] == 0 {
		delete(b.own, l.namespace)
	}
	ns := b.cluster.namespaces[l.namespace]
	if ns == nil || b.own[l.namespace] >= b.namespaceLimit() {
		return
	}
	for _, other := range ns.pods {
		if len(other.starved) > 0 {
			b.backlog.dirty[other] = struct{}{}
		}
	}
}

// unstarve clears the record of the rules that a pod lacks: the rest may be within the limits of the node.
func (b *budget) unstarve(p *podState) {
	b.isUndivided = b.isUndivided || len(p.starved) > 0
	p.starved = nil
}
