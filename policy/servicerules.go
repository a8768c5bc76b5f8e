package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// toServices returns rules for the frontends about which the rules would decide otherwise than about their backends.
// The node replaces a frontend by any of its backends, so a frontend is permitted if all of them are. A pod may contact
// itself, but by cluster IPs only: users choose the other addresses. The given rules match everything.
//
// The rules of cluster IPs come first, which users cannot choose. A Service that is over a limit is denied at all its
// addresses that the given rules may permit, behind the rules of other Services.
func (c *compilation) toServices(rules []Rule) []Rule {
	plan := c.compiler.services.planned(c.limits)
	name := nameOf(rules)
	key := madeFor{name, c.budget.halved.services[c.pod.Namespace]}
	isEndpoint := slices.ContainsFunc(c.nic.Addresses, func(a netip.Addr) bool { return len(plan.byPod[a]) > 0 })
	of, known := plan.made[key]
	if isEndpoint || !known {
		of = c.makeServiceRules(rules, name)
	}
	if !isEndpoint {
		if len(plan.made) >= maxDecided {
			clear(plan.made)
		}
		plan.made[key] = of
	}
	c.excess = append(c.excess, of.excess...)
	c.services = of.demand
	return slices.Clone(of.rules)
}

// maxChoices is how often the Services of a list are chosen again because those that stay need more rules beside those
// that do not.
const maxChoices = 3

// makeServiceRules returns the rules about Services that a list has in front of the given rules. name is the name of
// the given rules.
func (c *compilation) makeServiceRules(rules []Rule, name string) made {
	plan := c.compiler.services.planned(c.limits)
	d := &decider{compiler: c.compiler, own: newIndex(rules), namespace: c.pod.Namespace, nic: c.nic, plan: plan}
	d.skip()
	decisions := d.decideAll(name)
	sizes := make([]int, len(decisions))
	namespaces := make([]string, len(decisions))
	for n := range decisions {
		sizes[n] = decisions[n].size()
		namespaces[n] = plan.open[n].namespace()
	}
	demand := d.demandOf(namespaces, sizes)
	demand.key = d.keyOf(name, decisions)
	limit := c.budget.servicesLimit(c.pod.Namespace)
	of := d.choose(decisions, namespaces, sizes)
	for range maxChoices {
		if of.size <= limit {
			break
		}
		of = d.choose(decisions, namespaces, of.needs)
	}
	internal, external := d.within(of, decisions, limit)
	return made{slices.Concat(denyFirst(internal), denyFirst(external), of.denied), of.excess, demand}
}

// within returns the rules of the Services that fit. If they need more than the limit nevertheless, the last ones have
// the rules that they need without those that are closed, or only what denies if a closed one has the same address.
func (d *decider) within(of choice, decisions []decision, limit int) (internal, external []Rule) {
	left := limit
	for n := range of.rules {
		left -= decisions[n].size()
	}
	for _, n := range slices.Sorted(maps.Keys(of.rules)) {
		rules := of.rules[n]
		switch more := rules.size() - decisions[n].size(); {
		case more <= left:
			left -= more
		case d.hasAddressOf(d.plan.open[n], d.isClosedAt):
			rules = decisions[n].denials()
		default:
			rules = decisions[n]
		}
		internal = append(internal, rules.internal...)
		external = append(external, rules.external...)
	}
	return internal, external
}

// keyOf returns the key of the demand of a list: the name of its own rules, and of the decisions that are others for an
// endpoint. An author of EndpointSlices makes any pod an endpoint of any number of Services, but that alone changes no
// rule.
func (d *decider) keyOf(name string, decisions []decision) string {
	strangers := d.plan.decided[name]
	different := make(map[int]struct{})
	for _, a := range d.nic.Addresses {
		for _, n := range d.plan.byPod[a] {
			if !decisions[n].equal(&strangers[n]) {
				different[n] = struct{}{}
			}
		}
	}
	if len(different) == 0 {
		return name
	}
	var all []Rule
	for _, n := range slices.Sorted(maps.Keys(different)) {
		all = append(all, Rule{Origin: d.plan.open[n].Name}) // there may be no rule about it
		all = append(all, decisions[n].internal...)
		all = append(all, decisions[n].external...)
	}
	return name + " " + nameOf(all)
}

// choice says which Services have rules in a list.
type choice struct {
	rules  map[int]decision // of the Services that fit, by index
	needs  []int            // how many rules Services need
	size   int              // of the rules
	denied []Rule           // for the others
	excess []Excess
}

// choose decides which Services have rules, if they need the given numbers of rules. The others are denied.
func (d *decider) choose(decisions []decision, namespaces []string, needs []int) choice {
	limit := d.budget.servicesLimit(d.namespace)
	fit, part := fitByNamespace(namespaces, needs, limit, limit)
	of := choice{rules: make(map[int]decision), needs: slices.Clone(needs), excess: slices.Clone(d.plan.excess)}
	closed := slices.Clone(d.plan.closed)
	for n, fits := range fit {
		switch skipped, isSkipped := d.skipped[n]; {
		case isSkipped:
			closed = append(closed, d.plan.open[n])
			of.excess = append(of.excess, skipped)
		case !fits:
			closed = append(closed, d.plan.open[n])
			of.excess = append(of.excess, Excess{
				Of:     "Service " + d.plan.open[n].Name,
				Effect: effectService,
				Size:   needs[n],
				Limit:  part,
				Unit:   unitRules,
			})
		default:
			of.rules[n] = decisions[n]
		}
	}
	d.close(closed)
	d.denied = nil
	of.denied = d.deny(closed)
	for _, r := range of.denied {
		d.denied = append(d.denied, r.Remotes...)
	}
	d.denied = aggregate(d.denied)
	for n := range of.rules {
		s := d.plan.open[n]
		if d.hasAddressOf(s, d.isClosedAt) || d.isDenied(s) {
			of.rules[n] = d.decide(s)
		}
		rules := of.rules[n]
		of.needs[n] = max(needs[n], rules.size())
		of.size += of.needs[n]
	}
	return of
}

// denyFirst puts rules that deny before those that allow: if several Services have an address and port, all of them
// must be allowed.
func denyFirst(rules []Rule) []Rule {
	slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(b.Action, a.Action) })
	return rules
}
