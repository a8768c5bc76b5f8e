package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// compiled are the rules of an interface by direction, and the rules that limits exclude.
type compiled struct {
	rules    [2][]Rule
	own      [2]int // rules of the dataplane for the policies of the namespace
	services serviceDemand
	excess   []Excess
}

// compiler makes the lists of interfaces. It has everything that rules depend on.
type compiler struct {
	config Config
	limits Limits
	denied []Rule // of config

	cluster    cluster
	membership membership
	services   services
	budget     budget
	kept       fragments
	work       Work
}

// compilePod compiles the interfaces of a pod, and counts itself as a user of the lists.
func (e *compiler) compilePod(p *podState) map[string]Lists {
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
func (e *compiler) compileWithin(p *podState, i *Interface) *compiled {
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

// compilation makes the list of one direction of an interface.
type compilation struct {
	*compiler
	resolution
	omissions

	isStarved bool // other pods of the namespace have its rules
	own       int  // rules that the policies of the namespace have
	services  serviceDemand
}

// ownLimit returns the limit of the policies of a namespace. Only main interfaces have other rules.
func (c *compilation) ownLimit() int {
	if c.nic.Main {
		return c.limits.Own
	}
	return c.limits.Further
}

// compile returns the rules of an interface; nil: everything is permitted. If it is starved, the policies of its
// namespace allow no connection.
func (e *compiler) compile(p *podState, i *Interface, isStarved bool) *compiled {
	policies := p.policiesOf(i)
	var all compiled
	for _, d := range []Direction{Ingress, Egress} {
		c := &compilation{
			compiler:   e,
			resolution: e.resolution(subject{pod: p, nic: i, direction: d}),
			isStarved:  isStarved,
		}
		own := c.evaluationOrder(policies)
		if d == Egress && i.Main && own != nil {
			own = append(c.toServices(own), own...)
		}
		if d == Egress && i.Main {
			own = slices.Concat(e.denied, own)
		}
		all.rules[d] = own
		all.own[d] = c.own
		all.services = c.services
		all.excess = append(all.excess, c.excess...)
	}
	if len(all.rules[Ingress])+len(all.rules[Egress]) == 0 {
		return nil
	}
	for d := range all.rules {
		// A list that permits everything opens the sessions by which replies pass the other one.
		all.rules[d] = cut(append(all.rules[d], rest(Allow, "no policy selects the pod")))
	}
	return &all
}

func (e *compiler) resolution(s subject) resolution {
	return resolution{
		reading: reading{subject: s, cluster: &e.cluster, tallies: e.membership.tallies, limit: e.limits.Effort},
		kept:    &e.kept, work: &e.work,
	}
}

func rangesOf(protocol uint8, r Range) []PortRange {
	if protocol == AnyProtocol {
		return nil
	}
	return []PortRange{{protocol, r}}
}

// rest is the rule for all connections that no rule before matches.
func rest(a Action, origin string) Rule { return Rule{Action: a, Remotes: everywhere, Origin: origin} }

// cut removes the rules behind those that match everything.
func cut(rules []Rule) []Rule {
	var matched [2]bool // by family
	for n := range rules {
		for f, family := range everywhere {
			matched[f] = matched[f] || rules[n].isForAll(family)
		}
		if matched == [2]bool{true, true} {
			return rules[:n+1]
		}
	}
	return rules
}

// policiesOf lists the policies of an interface in the order of their evaluation.
func (p *podState) policiesOf(i *Interface) []*policyState {
	var list []*policyState
	for g := range p.groups {
		for policy := range g.subjects {
			if policy.applies(i) {
				list = append(list, policy)
			}
		}
	}
	slices.SortFunc(list, comparePolicies)
	return list
}

// evaluationOrder puts the rules of policies into one list: first those of kind Admin; then, if policies of kind
// Network or Multi isolate the pod, only their rules; else the rules of kind Baseline. It returns nil if
// no policy restricts the direction.
func (c *compilation) evaluationOrder(policies []*policyState) []Rule {
	var admin, baseline []Rule
	var isolating []*policyState
	for _, policy := range policies {
		switch policy.Kind {
		case Admin:
			admin = append(admin, c.adminRules(policy)...)
		case Baseline:
			baseline = append(baseline, c.adminRules(policy)...)
		default:
			if policy.Isolates[c.direction] {
				isolating = append(isolating, policy)
			}
		}
	}
	if len(isolating)+len(admin)+len(baseline) == 0 {
		return nil
	}
	admin = c.bound(admin, c.limits.Admin, c.size)
	var passes []Rule
	for _, r := range admin {
		if r.Action == Pass {
			passes = append(passes, r)
		}
	}
	size := func(r *Rule) int { return c.sizeBehind(passes, r) }
	var lower []Rule
	if len(isolating) > 0 {
		lower = c.isolate(isolating, size)
	} else {
		lower = append(slices.Clip(c.bound(baseline, c.limits.Own, size)), rest(Allow, "no policy denies it"))
	}
	var rules []Rule
	if c.direction == Ingress && c.nic.isOnDefault() {
		rules = fromNode(c.config.Nodes)
	}
	return append(rules, flatten(admin, lower)...)
}

// sizeBehind returns the size of a rule behind rules that pass: it is there for each of them, and for itself.
func (c *compilation) sizeBehind(passes []Rule, r *Rule) int {
	n := c.size(r)
	for _, p := range passes {
		if both, some := p.intersect(*r); some {
			n += c.size(&both)
		}
	}
	return n
}

// bound bounds the rules of cluster-wide policies.
func (c *compilation) bound(rules []Rule, limit int, size func(*Rule) int) []Rule {
	bounded, over := boundAdmin(rules, limit, size)
	for _, origin := range slices.Sorted(maps.Keys(over)) {
		c.excess = append(c.excess, Excess{
			Of:     origin,
			Effect: effectDenies,
			Size:   over[origin],
			Limit:  limit,
			Unit:   unitRules,
		})
	}
	return bounded
}

// adminRules returns the rules of a cluster-wide policy. If it has too many peers to read, they deny any address.
func (c *compilation) adminRules(policy *policyState) []Rule {
	if over := policy.Oversize; !over.IsZero() {
		c.excess = append(c.excess, Excess{
			Of:     policy.String(),
			Effect: effectDenies,
			Size:   over.Size,
			Limit:  over.Limit,
			Unit:   over.Unit,
		})
	}
	effort := c.effortFor(policy)
	if effort <= c.limits.Effort {
		return c.rulesFor(policy, part{})
	}
	c.excess = append(c.excess, Excess{
		Of:     policy.String(),
		Effect: effectDenies,
		Size:   effort,
		Limit:  c.limits.Effort,
		Unit:   unitAddresses,
	})
	var rules []Rule
	for _, r := range policy.Rules[c.direction] {
		if r.Action == Allow {
			continue
		}
		wide := Rule{
			Action:  Deny,
			Remotes: everywhere,
			Origin:  policy.String() + " " + r.Name + " (denies more: too many peers)",
		}
		isNamed := slices.ContainsFunc(r.Ports, Port.isNamed)
		if !r.AnyPort && !(isNamed && c.direction == Egress) {
			if wide.Ports = c.portsOfSubject(r.Ports); len(wide.Ports) == 0 {
				continue // it matches no packet
			}
		}
		rules = append(rules, wide)
	}
	return rules
}

// isolate returns the rules of a namespace's policies, and the rule that denies everything else. size returns the size
// of a rule in the list.
func (c *compilation) isolate(policies []*policyState, size func(*Rule) int) []Rule {
	var read []*policyState
	for _, policy := range policies {
		switch {
		case !policy.Oversize.IsZero():
			c.leaveOut(policy, policy.Oversize.Size, policy.Oversize.Limit, policy.Oversize.Unit)
		case policy.isCrowded:
			c.leaveOut(policy, len(policy.wide), c.limits.Selectors, unitSelectors)
		case policy.hasTooManySelectors():
			c.leaveOut(policy, policy.selectors, maxSelectors, unitSelectors)
		default:
			read = append(read, policy)
		}
	}
	read = c.divide(read, &c.omissions)
	var allowed []Rule
	if c.isStarved {
		c.starve(read, size)
	} else {
		allowed = c.allowed(read, size)
	}
	return append(allowed, c.isolated(policies))
}

// allowed returns what policies allow, within the limit.
func (c *compilation) allowed(policies []*policyState, size func(*Rule) int) []Rule {
	if c.unread != nil {
		return c.shared(policies, size)
	}
	var whole []Rule
	for _, policy := range policies {
		whole = append(whole, c.rulesFor(policy, part{})...)
	}
	needed := sizeOfAll(whole, size)
	if needed > c.ownLimit() {
		return c.shared(policies, size)
	}
	c.own = needed
	return whole
}

// shared returns rules of policies that need more rules than the limit, or have peers that are not read. The policies
// are first compared by their need without pods of other namespaces, and the smallest ones are applied. The pods of
// each other namespace then have a fair share of the rest. So the pods of one namespace neither displace pods of
// another one nor the policies' own peers.
func (c *compilation) shared(policies []*policyState, size func(*Rule) int) []Rule {
	sizes := make([]int, len(policies))
	for n, policy := range policies {
		sizes[n] = sizeOfAll(c.rulesFor(policy, policy.own()), size)
	}
	demands := make(map[string]int) // of other namespaces
	var allowed []Rule
	var fit []*policyState
	for n, fits := range atMost(sizes, c.ownLimit()) {
		policy := policies[n]
		if !fits {
			c.leaveOut(policy, sizes[n], c.ownLimit(), unitRules)
			continue
		}
		fit = append(fit, policy)
		allowed = append(allowed, c.rulesFor(policy, policy.own())...)
		c.own += sizes[n]
		for _, namespace := range c.peersOf(policy).namespaces {
			demands[namespace] += sizeOfAll(c.rulesFor(policy, part{true, namespace}), size)
		}
	}
	share := fairShare(slices.Collect(maps.Values(demands)), c.ownLimit()-c.own)
	for _, policy := range fit {
		var excluded []string
		for _, namespace := range c.peersOf(policy).namespaces {
			if demands[namespace] > share {
				excluded = append(excluded, namespace)
				continue
			}
			rules := c.rulesFor(policy, part{true, namespace})
			allowed = append(allowed, rules...)
			c.own += sizeOfAll(rules, size)
		}
		if len(excluded) > 0 {
			c.exclude(policy, listed(excluded), "rules", Excess{
				Size:  largest(excluded, demands),
				Limit: share,
				Unit:  unitRules + " for one of them",
			})
		}
	}
	return allowed
}

// isolated is the rule for what policies do not allow.
func (c *compilation) isolated(policies []*policyState) Rule {
	var all []string
	for _, policy := range policies {
		all = append(all, c.nameOf(policy))
	}
	return rest(Deny, listed(all)+" "+c.direction.String()+": no rule allows it")
}

// starve leaves out all policies that have rules.
func (c *compilation) starve(policies []*policyState, size func(*Rule) int) {
	for _, policy := range policies {
		if n := sizeOfAll(c.readRules(policy), size); n > 0 {
			c.leaveOut(policy, n, c.budget.namespaceLimit(), unitRules)
		}
	}
}

func sizeOfAll(rules []Rule, size func(*Rule) int) int {
	n := 0
	for k := range rules {
		n += size(&rules[k])
	}
	return n
}

// omissions are the policies of a list that are not applied completely.
type omissions struct {
	excess []Excess
	names  map[*policyState]string // in explanations
}

// leaveOut notes that the rules of a policy allow no connection. It isolates the pod as before.
func (o *omissions) leaveOut(policy *policyState, size, limit int, unit string) {
	o.excess = append(o.excess, Excess{
		Of:     policy.String(),
		Effect: effectIsolates,
		Size:   size,
		Limit:  limit,
		Unit:   unit,
	})
	o.rename(policy, policy.String()+" (over the limit of rules)")
}

// exclude notes that a policy permits no connection with pods of some namespaces, because of a limit of the given name.
// x has the need of one of them.
func (o *omissions) exclude(policy *policyState, namespaces, limit string, x Excess) {
	o.rename(policy, o.nameOf(policy)+" (not for pods of "+namespaces+": over the limit of "+limit+")")
	x.Of = policy.String()
	x.Effect = effectExcludes + namespaces
	o.excess = append(o.excess, x)
}

func (o *omissions) rename(policy *policyState, name string) {
	if o.names == nil {
		o.names = make(map[*policyState]string)
	}
	o.names[policy] = name
}

// nameOf returns the name of a policy in explanations.
func (o *omissions) nameOf(policy *policyState) string {
	return cmp.Or(o.names[policy], policy.String())
}

// maxListed is the number of policies that an explanation names: thousands of policies may select a pod.
const maxListed = 8

// listed joins names.
func listed(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// fromNode permits connections from the addresses of this node. They come first, so that no policy stops kubelet's
// probes.
func fromNode(node []netip.Prefix) []Rule {
	if len(node) == 0 {
		return nil
	}
	return []Rule{{Remotes: aggregate(node), Origin: "the pod's own node"}}
}

// flatten replaces each rule that passes by the part of the lower rules that it matches. The lower rules match
// everything.
func flatten(upper, lower []Rule) []Rule {
	var rules []Rule
	for _, u := range upper {
		if u.Action != Pass {
			rules = append(rules, u)
			continue
		}
		for _, l := range lower {
			if both, some := u.intersect(l); some {
				rules = append(rules, both)
			}
		}
	}
	return append(rules, lower...)
}

// nameLength is the number of bytes of the hash in a name. Pods share lists by name, and users choose parts of the
// content, so two contents with one name must not be found: with 8 bytes, 2^32 attempts would be enough. More than 14
// do not fit into the label of an ACL.
const nameLength = 14

// nameOf names a list by its content.
func nameOf(rules []Rule) string {
	h := sha256.New()
	var b []byte
	for _, r := range rules {
		b = append(b[:0], byte(r.Action))
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.Remotes)))
		for _, p := range r.Remotes {
			b = append(b, byte(p.Addr().BitLen()), byte(p.Bits()))
			b = append(b, p.Addr().AsSlice()...)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.Ports)))
		for _, p := range r.Ports {
			b = append(b, p.Protocol)
			b = binary.BigEndian.AppendUint16(b, p.First)
			b = binary.BigEndian.AppendUint16(b, p.Last)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(r.Origin)))
		h.Write(append(b, r.Origin...))
	}
	return hex.EncodeToString(h.Sum(nil)[:nameLength])
}

// Closed returns the lists of an interface before its pod is known: only the node reaches it.
func Closed(node []netip.Prefix) Lists {
	const origin = "the API server has not shown the pod yet"
	deny := []Rule{rest(Deny, origin)}
	ingress := append(fromNode(node), deny...)
	return Lists{{Name: nameOf(ingress), Rules: ingress}, {Name: nameOf(deny), Rules: deny}}
}
