package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/netaddr"
)

// Service is a Service with cluster addresses that pods contact. The node translates them behind the dataplane, so the
// rules of a pod see them untranslated.
type Service struct {
	Name      string // namespace/name
	Frontends []Frontend
	// the number of endpoints of all ports if these were not read, as they are more than MaxEndpoints: frontends have
	// no backends
	Unread int
}

// MaxEndpoints is the number of endpoints of all ports of a Service above which no list decides about it.
var MaxEndpoints = DefaultLimits.NamespaceLookups

// Frontend is a port of a Service at some addresses of one family, with the endpoints that the node replaces it by.
// Frontends share sets of addresses and never change them.
type Frontend struct {
	Addresses []netip.Addr
	Protocol  uint8
	Port      uint16
	External  bool // external IPs or addresses of load balancers: they may be any
	Backends  []Backends
}

// Backends are endpoints with the same port.
type Backends struct {
	Addresses []netip.Addr
	Port      uint16
}

func equalFrontends(a, b Frontend) bool {
	isSame := a.Protocol == b.Protocol && a.Port == b.Port && a.External == b.External &&
		slices.Equal(a.Addresses, b.Addresses)
	return isSame &&
		slices.EqualFunc(a.Backends, b.Backends, func(x, y Backends) bool {
			return x.Port == y.Port && slices.Equal(x.Addresses, y.Addresses)
		})
}

// lookups returns the number of decisions that a Service needs, at most.
func (s *Service) lookups() int {
	n := s.Unread
	for i := range s.Frontends {
		n += 1 + len(s.Frontends[i].Addresses)
		for _, b := range s.Frontends[i].Backends {
			n += 1 + len(b.Addresses)
		}
	}
	return n
}

func (s *Service) namespace() string {
	namespace, _, _ := strings.Cut(s.Name, "/")
	return namespace
}

// services are the Services of the cluster, and the plan which of them get rules.
type services struct {
	byName   map[string]*Service
	external map[netip.Addr]int // number of Services with the external address
	plan     *servicePlan       // nil: to be made
}

// set adds a Service or changes it, and reports whether it differs.
func (v *services) set(s Service) bool {
	was, known := v.byName[s.Name]
	if known && was.Unread == s.Unread && slices.EqualFunc(was.Frontends, s.Frontends, equalFrontends) {
		return false
	}
	if known {
		v.countExternal(was, -1)
	}
	v.countExternal(&s, 1)
	v.byName[s.Name] = &s
	return true
}

// remove removes a Service, and reports whether it was known.
func (v *services) remove(name string) bool {
	was, known := v.byName[name]
	if !known {
		return false
	}
	v.countExternal(was, -1)
	delete(v.byName, name)
	return true
}

// countExternal adds the external addresses of a Service to the counts of all Services, or removes them if n is -1.
// Frontends with the same addresses share them, so these count once.
func (v *services) countExternal(s *Service, n int) {
	for a := range s.addresses(true) {
		if v.external[a] += n; v.external[a] == 0 {
			delete(v.external, a)
		}
	}
}

// addresses returns the external addresses of a Service, or its cluster IPs.
func (s *Service) addresses(external bool) map[netip.Addr]struct{} {
	all := make(map[netip.Addr]struct{})
	var last []netip.Addr
	for i := range s.Frontends {
		f := &s.Frontends[i]
		if f.External != external || sameSlice(f.Addresses, last) {
			continue
		}
		last = f.Addresses
		for _, a := range f.Addresses {
			all[a] = struct{}{}
		}
	}
	return all
}

// servicePlan says which Services have rules of their own. It depends on Services only, so all pods share it.
type servicePlan struct {
	open    []*Service            // that get rules, by name
	shared  map[netip.Addr]bool   // addresses of the Services in open; true: of several
	byPod   map[netip.Addr][]int  // Services in open with cluster IPs and an endpoint at an address
	closed  []*Service            // that need too many decisions, by name
	excess  []Excess              // of closed
	decided map[string][]decision // what lists decide about the Services in open, by the name of the list's own rules
	made    map[madeFor]made      // the rules that follow for pods that are no endpoints
}

// madeFor are lists with the same rules about Services: they have the same own rules, by name, and limits that are
// halved as often.
type madeFor struct {
	name   string
	halved uint
}

// made are the rules about Services for a list, and the Services that limits exclude.
type made struct {
	rules  []Rule
	excess []Excess
	demand serviceDemand
}

// maxDecided bounds the lists of which a plan has the decisions. Pods with the same policies share one.
const maxDecided = 64

// planned divides the Services of namespaces by the number of decisions that they need, so that each namespace has
// a fair share.
func (v *services) planned(limits Limits) *servicePlan {
	if v.plan != nil {
		return v.plan
	}
	p := &servicePlan{
		shared:  make(map[netip.Addr]bool),
		byPod:   make(map[netip.Addr][]int),
		decided: make(map[string][]decision),
		made:    make(map[madeFor]made),
	}
	v.plan = p
	names := slices.Sorted(maps.Keys(v.byName))
	sizes := make([]int, len(names))
	namespaces := make([]string, len(names))
	for n, name := range names {
		sizes[n] = v.byName[name].lookups()
		namespaces[n] = v.byName[name].namespace()
	}
	fit, part := fitByNamespace(namespaces, sizes, limits.Lookups, limits.NamespaceLookups)
	for n, name := range names {
		s := v.byName[name]
		if !fit[n] {
			p.closed = append(p.closed, s)
			p.excess = append(p.excess, Excess{
				Of:     "Service " + name,
				Effect: effectService,
				Size:   sizes[n],
				Limit:  part,
				Unit:   unitLookups,
			})
			continue
		}
		p.add(s)
	}
	return p
}

func (p *servicePlan) add(s *Service) {
	for _, external := range []bool{false, true} {
		for a := range s.addresses(external) {
			_, known := p.shared[a]
			p.shared[a] = known
		}
	}
	for i := range s.Frontends {
		if s.Frontends[i].External {
			continue
		}
		for _, b := range s.Frontends[i].Backends {
			for _, a := range b.Addresses {
				if at := p.byPod[a]; len(at) == 0 || at[len(at)-1] != len(p.open) {
					p.byPod[a] = append(at, len(p.open))
				}
			}
		}
	}
	p.open = append(p.open, s)
}

// fitByNamespace returns which things of namespaces fit, and the part of the total for one namespace, which is at most
// most.
func fitByNamespace(namespaces []string, sizes []int, total, most int) (fit []bool, part int) {
	of := make(map[string][]int) // indices
	demands := make(map[string]int)
	for n, ns := range namespaces {
		of[ns] = append(of[ns], n)
		demands[ns] += sizes[n]
	}
	for ns := range demands {
		demands[ns] = min(demands[ns], most)
	}
	part = min(most, fairShare(slices.Collect(maps.Values(demands)), total))
	fit = make([]bool, len(sizes))
	for _, own := range of {
		ownSizes := make([]int, len(own))
		for k, n := range own {
			ownSizes[k] = sizes[n]
		}
		for k, fits := range atMost(ownSizes, part) {
			fit[own[k]] = fits
		}
	}
	return fit, part
}

// decider decides about the Services that an interface contacts.
type decider struct {
	*compiler
	own       *index // the rules that decide about endpoints
	namespace string // of the pod
	nic       *Interface
	plan      *servicePlan
	denied    []netip.Prefix // by rules for Services over a limit: other Services there need rules of their own

	closed  map[netip.Addr][]closedAt // Services over a limit, by address
	skipped map[int]Excess            // open Services without a decision, as lookups take too long
}

// skip leaves Services out if a lookup counts more than once: the rules have prefixes of many lengths.
func (d *decider) skip() {
	weight := d.own.weight()
	if weight == 1 {
		return
	}
	sizes := make([]int, len(d.plan.open))
	namespaces := make([]string, len(d.plan.open))
	for n, s := range d.plan.open {
		sizes[n] = weight * s.lookups()
		namespaces[n] = s.namespace()
	}
	fit, part := fitByNamespace(namespaces, sizes, d.limits.Lookups, d.limits.NamespaceLookups)
	d.skipped = make(map[int]Excess)
	for n, fits := range fit {
		if !fits {
			d.skipped[n] = Excess{
				Of:     "Service " + d.plan.open[n].Name,
				Effect: effectService,
				Size:   sizes[n],
				Limit:  part,
				Unit:   unitLookups,
			}
		}
	}
}

// demandOf returns what Services need without the limits of the node: rules of those that fit then, and denied prefixes
// of the others.
func (d *decider) demandOf(namespaces []string, sizes []int) (of serviceDemand) {
	closed := slices.Clone(d.plan.closed)
	for level := range of.rules {
		limit := d.limits.Services >> level
		fit, _ := fitByNamespace(namespaces, sizes, limit, limit)
		for n, fits := range fit {
			if fits && !d.isSkipped(n) {
				of.rules[level] += sizes[n]
			} else if level == 0 {
				closed = append(closed, d.plan.open[n])
			}
		}
	}
	for _, prefixes := range d.deniedBy(closed) {
		of.denied += len(prefixes)
	}
	return of
}

func (d *decider) isSkipped(n int) bool {
	_, is := d.skipped[n]
	return is
}

// decideAll returns the decisions about the open Services. Pods with the same rules share those about Services of which
// they are no endpoints.
func (d *decider) decideAll(name string) []decision {
	plan := d.plan
	all, known := plan.decided[name]
	if !known {
		if len(plan.decided) >= maxDecided {
			clear(plan.decided)
		}
		stranger := decider{compiler: d.compiler, own: d.own, nic: &Interface{}, plan: plan}
		all = make([]decision, len(plan.open))
		for n, s := range plan.open {
			if !d.isSkipped(n) {
				all[n] = stranger.decide(s)
			}
		}
		plan.decided[name] = all
	}
	all = slices.Clone(all)
	for _, a := range d.nic.Addresses {
		for _, n := range plan.byPod[a] {
			if !d.isSkipped(n) {
				all[n] = d.decide(plan.open[n])
			}
		}
	}
	return all
}

// closedAt is a Service over a limit, at a cluster IP or an external address.
type closedAt struct {
	*Service
	external bool
}

// close notes the Services that are over a limit.
func (d *decider) close(closed []*Service) {
	d.closed = make(map[netip.Addr][]closedAt)
	for _, s := range closed {
		for _, external := range []bool{false, true} {
			for a := range s.addresses(external) {
				d.closed[a] = append(d.closed[a], closedAt{s, external})
			}
		}
	}
}

// isClosedAt reports whether a Service over a limit has an address.
func (d *decider) isClosedAt(a netip.Addr) bool { return len(d.closed[a]) > 0 }

// isClosed reports whether a Service over a limit has an address and the port of a frontend, too: its endpoints are
// unknown, and all must be permitted. Users choose external addresses, so these do not close a cluster IP.
func (d *decider) isClosed(f *Frontend, a netip.Addr) bool {
	return slices.ContainsFunc(d.closed[a], func(at closedAt) bool {
		isSame := func(o Frontend) bool {
			return o.Protocol == f.Protocol && o.Port == f.Port && o.External == at.external
		}
		return (f.External || !at.external) && slices.ContainsFunc(at.Frontends, isSame)
	})
}

// isDenied reports whether a rule for Services over a limit denies an address of a Service.
func (d *decider) isDenied(s *Service) bool {
	return len(d.denied) > 0 && d.hasAddressOf(s, func(a netip.Addr) bool { return contain(d.denied, a) })
}

// hasAddressOf reports whether f is true for an address of a Service.
func (d *decider) hasAddressOf(s *Service, f func(netip.Addr) bool) bool {
	var last []netip.Addr
	for i := range s.Frontends {
		addresses := s.Frontends[i].Addresses
		if sameSlice(addresses, last) {
			continue
		}
		last = addresses
		if slices.ContainsFunc(addresses, f) {
			return true
		}
	}
	return false
}

// sameSlice reports whether both are one slice.
func sameSlice(a, b []netip.Addr) bool {
	return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0]
}

// decide returns the rules about a Service.
func (d *decider) decide(s *Service) decision {
	d.work.Services++
	internal := make(portSets)
	external := make(portSets)
	for i := range s.Frontends {
		f := &s.Frontends[i]
		r, needed := d.frontend(s, f)
		switch {
		case !needed:
		case f.External:
			external.add(r)
		default:
			internal.add(r)
		}
	}
	return decision{internal.rules(), external.rules()}
}

// frontend returns the rule about a frontend; false if the own rules decide likewise.
func (d *decider) frontend(s *Service, f *Frontend) (Rule, bool) {
	action, origin, some := d.backends(s, f)
	if !some {
		return Rule{}, false
	}
	r := Rule{Action: action, Ports: rangesOf(f.Protocol, Range{f.Port, f.Port}), Origin: origin}
	for _, a := range f.Addresses {
		if d.isPod(f, a) || action == Allow && d.isClosed(f, a) {
			continue
		}
		// Of Services with the same address no rule is left out: the rule of another one would decide.
		if contain(d.denied, a) || d.plan.shared[a] || d.own.decide(a, f.Protocol, f.Port).Action != action {
			r.Remotes = append(r.Remotes, netaddr.Single(a))
		}
	}
	r.Remotes = aggregate(r.Remotes)
	return r, len(r.Remotes) > 0
}

// backends returns the decision of the own rules about the backends of a frontend together; false without backends.
func (d *decider) backends(s *Service, f *Frontend) (a Action, origin string, some bool) {
	for _, of := range f.Backends {
		for _, b := range of.Addresses {
			some = true
			isItself := !f.External && slices.Contains(d.nic.Addresses, b)
			if why := d.own.decide(b, f.Protocol, of.Port); why.Action != Allow && !isItself {
				return Deny, fmt.Sprintf("%s (an endpoint of Service %s)", why.Origin, s.Name), true
			}
		}
	}
	return Allow, "Service " + s.Name + ": its endpoints are allowed, or the pod itself", some
}

// isPod reports whether an external address belongs to a pod. The dataplane sends packets for it to the pod, so the
// node never replaces the address, and only the rules about pods may decide.
func (d *decider) isPod(f *Frontend, a netip.Addr) bool {
	return f.External && d.cluster.addresses[a] > 0
}

// deny returns rules that deny all addresses of Services that the own rules may permit: one for each namespace. Where a
// namespace has too many addresses, the rule denies more.
func (d *decider) deny(closed []*Service) []Rule {
	by := d.deniedBy(closed)
	var demands []int
	for _, prefixes := range by {
		demands = append(demands, len(prefixes))
	}
	part := fairShare(demands, d.budget.closedLimit(d.namespace))
	if part < 2 { // more namespaces than rules: together
		all := slices.Concat(slices.Collect(maps.Values(by))...)
		by = map[string][]netip.Prefix{"of several namespaces": aggregate(all)}
		part = d.budget.closedLimit(d.namespace)
	}
	var rules []Rule
	for _, ns := range slices.Sorted(maps.Keys(by)) {
		remotes := by[ns]
		if len(remotes) > part {
			remotes = coarsen(remotes, part/2)
		}
		rules = append(rules, Rule{
			Action:  Deny,
			Remotes: remotes,
			Origin:  "Services of namespace " + ns + " that are over a limit",
		})
	}
	return rules
}

// deniedBy returns the addresses of Services, by namespace, that the own rules may permit.
func (d *decider) deniedBy(closed []*Service) map[string][]netip.Prefix {
	by := make(map[string][]netip.Prefix)
	for _, s := range closed {
		for _, external := range []bool{false, true} {
			for a := range s.addresses(external) {
				if d.own.mayAllow(a) && !(external && d.cluster.addresses[a] > 0) {
					by[s.namespace()] = append(by[s.namespace()], netaddr.Single(a))
				}
			}
		}
	}
	for ns, prefixes := range by {
		by[ns] = aggregate(prefixes)
	}
	return by
}
