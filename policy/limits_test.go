package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

func TestIndexDecidesLikeTheList(t *testing.T) {
	seed := seedOf(t)
	for n := range *policyWorlds / 10 {
		d := newDice(seed, n)
		l := List{}
		for range d.IntN(60) {
			r := Rule{
				Action:  Action(d.IntN(2)),
				Remotes: aggregate(several(d, 1, 3, func() netip.Prefix { return netip.MustParsePrefix(d.cidr()) })),
			}
			if d.chance(50) {
				r.Remotes = everywhere
			}
			if d.chance(90) {
				r.Ports = mergePorts(several(d, 1, 3, func() PortRange {
					first := uint16(d.port())
					return PortRange{numbers[d.protocol()], Range{first, first + uint16(d.IntN(4))}}
				}))
			}
			r.Origin = fmt.Sprint(len(l.Rules))
			l.Rules = append(l.Rules, r)
		}
		x := newIndex(l.Rules)
		for range 60 {
			remote := d.remote()
			protocol := numbers[d.protocol()]
			port := uint16(d.port())
			want := l.Decide(remote, protocol, port)
			if got := x.decide(remote, protocol, port); got.Origin != want.Origin {
				t.Fatalf("rules %d: %s %d/%d: rule %s, want %s of %+v", n, remote, protocol, port, got.Origin,
					want.Origin, l.Rules)
			}
			if want.Action == Allow && !x.mayAllow(remote) {
				t.Fatalf("rules %d: nothing is allowed to %s", n, remote)
			}
		}
	}
}

// serviceAt returns an address that Services have, of IPv4; 200 to 207 are cluster IPs, and 10.0.0.16 to 10.0.0.23 may
// be those of pods.
func (d dice) serviceAddress(external bool) netip.Addr {
	if external {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(16 + d.IntN(8))})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(200 + d.IntN(8))})
}

func (d dice) service(n int) Service {
	s := Service{Name: fmt.Sprintf("%s/s%d", d.namespace(), n)}
	for _, external := range []bool{false, true} {
		addresses := several(d, 1, 3, func() netip.Addr { return d.serviceAddress(external) })
		slices.SortFunc(addresses, netip.Addr.Compare)
		addresses = slices.Compact(addresses)
		taken := make(map[PortRange]bool) // the API server refuses a port twice
		for range d.IntN(4) {
			f := Frontend{
				Addresses: addresses, External: external, Protocol: numbers[d.protocol()], Port: uint16(d.port()),
				Backends: several(d, 0, 2, func() Backends {
					return Backends{
						several(d, 1, 2, func() netip.Addr {
							return netip.AddrFrom4([4]byte{10, 0, 0, byte(d.IntN(24))})
						}),
						uint16(d.port()),
					}
				}),
			}
			k := PortRange{f.Protocol, Range{f.Port, f.Port}}
			if !taken[k] {
				s.Frontends = append(s.Frontends, f)
			}
			taken[k] = true
		}
	}
	return s
}

// permitsByService evaluates all Services with cluster IPs that have the destination of a packet, or else those with
// external addresses; some is false if none has.
func (w *world) permitsByService(k packet, services []Service) (permitted, some bool) {
	isExternal := false
	backends := backendsOf(services, k, isExternal)
	if len(backends) == 0 && !w.hasPodAt(k.remote) {
		isExternal = true
		backends = backendsOf(services, k, isExternal)
	}
	for _, b := range backends {
		to := k
		to.remote = b.Addr()
		to.port = b.Port()
		isItself := !isExternal && slices.Contains(k.nic.Addresses, b.Addr())
		if !isItself && !w.permits(to) {
			return false, true
		}
	}
	return len(backends) > 0, len(backends) > 0
}

// hasPodAt reports whether an interface that the node reaches has an address.
func (w *world) hasPodAt(a netip.Addr) bool {
	return slices.ContainsFunc(w.pods, func(q *machine) bool {
		return !q.hostNetwork && slices.ContainsFunc(q.Interfaces, func(i Interface) bool {
			return i.isOnDefault() && slices.Contains(i.Addresses, a)
		})
	})
}

// backendsOf lists the backends of all frontends for a packet, with cluster IPs or with external addresses.
func backendsOf(services []Service, k packet, isExternal bool) []netip.AddrPort {
	var list []netip.AddrPort
	for _, s := range services {
		for _, f := range s.Frontends {
			if f.External == isExternal && f.Protocol == k.protocol && f.Port == k.port &&
				slices.Contains(f.Addresses, k.remote) {
				list = append(list, f.endpoints()...)
			}
		}
	}
	return list
}

// endpoints lists the addresses and ports of a frontend's backends.
func (f *Frontend) endpoints() []netip.AddrPort {
	var list []netip.AddrPort
	for _, of := range f.Backends {
		for _, a := range of.Addresses {
			list = append(list, netip.AddrPortFrom(a, of.Port))
		}
	}
	return list
}

// isPoliced reports whether the rules of Services apply: a policy restricts what the pod sends.
func isPoliced(lists map[ID]map[string]Lists, k packet) bool {
	l := lists[k.pod.ID][k.nic.Name][Egress]
	return l != nil && !(len(l.Rules) == 1 && l.Rules[0].Origin == "no policy selects the pod")
}

// mustHold fails the test if lists have more rules than the limits say.
func (small Limits) mustHold(t *testing.T, lists map[ID]map[string]Lists) {
	t.Helper()
	for id, interfaces := range lists {
		for nic, both := range interfaces {
			most := small.Own + small.Admin + small.Services + small.Closed + small.Fixed + 6
			if nic != "eth0" {
				most += small.Further + GuardedAny4 + GuardedAny6 // for the rule that allows everything else
			}
			for dir, l := range both {
				if size := l.Size(Direction(dir) == Egress && nic != "eth0"); size > most {
					t.Fatalf("%s %s: %d rules, limit %d: %+v", id, nic, size, most, l.Rules)
				}
			}
		}
	}
}

// smallLimits are limits that random worlds exceed, without those of all namespaces and of lookups.
func smallLimits(d dice) Limits {
	return Limits{
		Own:         1 + d.IntN(20),
		Node:        d.IntN(60),
		AllServices: d.IntN(60),
		Further:     1 + d.IntN(2000),
		Admin:       2 + d.IntN(12),
		Services:    d.IntN(12),
		Closed:      2 + d.IntN(6),
		Fixed:       10,
		ReadLimits:  ReadLimits{Effort: 1 + d.IntN(60), Selectors: d.IntN(8)},
	}
}

// The rules are compared with an evaluation of Services one by one. With limits, a list denies more, never less, and
// has no more rules than the limits say.
func TestLimitsDenyMoreNeverLess(t *testing.T) {
	seed := seedOf(t)
	var closed, open, byService int
	for n := range *policyWorlds {
		d := newDice(seed, n)
		w := d.world(t)
		services := several(d, 0, 5, func() Service { return d.service(d.IntN(1000)) })
		slices.SortFunc(services, func(a, b Service) int { return strings.Compare(a.Name, b.Name) })
		services = slices.CompactFunc(services, func(a, b Service) bool { return a.Name == b.Name })
		small := smallLimits(d)
		small.AllNamespaces = d.IntN(120)
		small.Lookups = d.IntN(60)
		small.NamespaceLookups = d.IntN(40)
		engines := [2]*Engine{NewEngine(Config{}), NewEngine(Config{Limits: small})}
		var lists [2]map[ID]map[string]Lists
		for i, e := range engines {
			w.fill(t, e)
			for _, s := range services {
				e.SetService(s)
			}
			e.Compile()
			lists[i] = e.Lists()
		}
		small.mustHold(t, lists[1])
		for range 100 {
			k := d.packet(w)
			if !k.pod.Local {
				continue
			}
			isService := d.chance(50) && k.direction == Egress && k.nic.Main
			if isService {
				k.remote = d.serviceAddress(d.chance(50))
			}
			want := w.permits(k)
			if isPoliced(lists[0], k) && k.direction == Egress && k.nic.Main {
				if permitted, some := w.permitsByService(k, services); some {
					want = permitted
					byService++
				}
			}
			got, why := evaluate(lists[0], k)
			if got != want {
				t.Fatalf("cluster %d: %s of %s on %s with %s, protocol %d port %d: permitted %t (%s), want %t\n%+v\n%s",
					n, k.direction, k.pod, k.nic.Name, k.remote, k.protocol, k.port, got, why, want, services, show(w))
			}
			bounded, why := evaluate(lists[1], k)
			if bounded && !want {
				t.Fatalf(
					"cluster %d, limits %+v: %s of %s on %s with %s, protocol %d port %d is permitted (%s)\n%+v\n%s", n,
					small, k.direction, k.pod, k.nic.Name, k.remote, k.protocol, k.port, why, services, show(w))
			}
			if want && !bounded {
				closed++
			} else if want {
				open++
			}
		}
	}
	t.Logf("permitted packets: %d denied because of limits, %d not; %d by a Service", closed, open, byService)
	if closed == 0 || open == 0 || byService == 0 {
		t.Error("the limits are not effective, or deny everything")
	}
}

func TestLimitsTogetherAreAtMostWhatTheDataplaneAccepts(t *testing.T) {
	l := DefaultLimits
	const others = 500 // the node, guards, rules for everything else
	if sum := l.Own + l.Admin + l.Services + l.Closed + l.Fixed + others; max(sum, l.Further+others) > maxRules {
		t.Errorf("%d rules, and the dataplane accepts %d", sum, maxRules)
	}
}

func TestTheSmallestThatFitAreApplied(t *testing.T) {
	for _, tt := range []struct {
		limit int
		want  []bool
	}{
		{0, []bool{false, false, false}}, {2, []bool{false, true, false}}, {4, []bool{false, true, false}},
		{5, []bool{true, true, false}}, {15, []bool{true, true, true}},
	} {
		if got := atMost([]int{3, 2, 10}, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("limit %d: %v, want %v", tt.limit, got, tt.want)
		}
	}
}

func TestFairShare(t *testing.T) {
	for _, tt := range []struct {
		demands []int
		total   int
		want    int
	}{
		{nil, 10, 10}, {[]int{3, 4}, 10, 10}, {[]int{3, 100}, 10, 7}, {[]int{100, 3, 100}, 13, 5},
		{[]int{5, 5, 5}, 12, 4}, {[]int{1, 1, 1}, 0, 0},
	} {
		got := fairShare(tt.demands, tt.total)
		sum := 0
		for _, d := range tt.demands {
			sum += min(d, got)
		}
		if got != tt.want || sum > tt.total {
			t.Errorf("%v of %d: %d, want %d", tt.demands, tt.total, got, tt.want)
		}
	}
}

// Namespaces with little have all of it, and those with much share what is left.
func TestLimitsAreDividedAmongNamespaces(t *testing.T) {
	namespaces := []string{"evil", "evil", "evil", "large", "small"}
	sizes := []int{30, 10, 39, 45, 20}
	for _, tt := range []struct {
		total, most int
		want        []bool
		part        int
	}{
		{1000, 100, []bool{true, true, true, true, true}, 100},
		{1000, 50, []bool{true, true, false, true, true}, 50},
		{110, 100, []bool{true, true, false, true, true}, 45},
		{100, 80, []bool{true, true, false, false, true}, 40},
		{30, 100, []bool{false, true, false, false, false}, 10},
		{0, 100, []bool{false, false, false, false, false}, 0},
	} {
		fit, part := fitByNamespace(namespaces, sizes, tt.total, tt.most)
		sum := 0
		for n, fits := range fit {
			if fits {
				sum += sizes[n]
			}
		}
		if !slices.Equal(fit, tt.want) || part != tt.part || sum > tt.total {
			t.Errorf("%d, %d for a namespace: %v with %d, a part is %d, want %v and %d",
				tt.total, tt.most, fit, sum, part, tt.want, tt.part)
		}
	}
}

// A namespace with many Services has no more of the limit of all namespaces than its share.
func TestLimitsOfAllServicesAreSharedByNamespaces(t *testing.T) {
	limits := DefaultLimits
	limits.Lookups = 200
	limits.NamespaceLookups = 160
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
	e.SetPolicy(networkPolicy(t, "shop/p",
		`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}`))
	for ns, n := range map[string]int{"evil": 35, "shop": 20} {
		for i := range n {
			e.SetService(Service{
				Name: fmt.Sprintf("%s/s%02d", ns, i),
				Frontends: []Frontend{{
					Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, ns[0], byte(2 * i)})},
					Protocol:  TCP,
					Port:      80,
					Backends:  []Backends{{[]netip.Addr{address("10.0.0.2")}, 80}},
				}},
			})
		}
	}
	e.Compile()
	allowed := make(map[string]int)
	list := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
	for _, s := range e.services.byName {
		if list.Decide(s.Frontends[0].Addresses[0], TCP, 80).Action == Allow {
			allowed[s.namespace()] += s.lookups()
		}
	}
	if allowed["shop"] != 80 || allowed["evil"] != 120 {
		t.Errorf("Services with %v lookups have rules, want 80 of shop and 120 of evil", allowed)
	}
	for _, x := range e.Excess() {
		if !strings.HasPrefix(x.Of, "Service evil/") || x.Limit != 120 {
			t.Errorf("excess %+v", x)
		}
	}
}

// hostile returns a Service with many ports at many external addresses, none of which are neighbours.
func hostile(name string, ports, addresses int) Service {
	s := Service{Name: name}
	var list []netip.Addr
	for n := range addresses {
		list = append(list, netip.AddrFrom4([4]byte{203, byte(n >> 15), byte(n >> 7), byte(n << 1)}))
	}
	for p := range ports {
		s.Frontends = append(s.Frontends, Frontend{
			Addresses: list,
			External:  true,
			Protocol:  TCP,
			Port:      uint16(1000 + 2*p),
			Backends:  []Backends{{[]netip.Addr{address("10.0.0.66")}, 80}},
		})
	}
	return s
}

// victim is an engine with a policed pod of a namespace, with a Service that it may contact, and one that it may not.
func victim(t testing.TB) *Engine {
	e := NewEngine(Config{})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
	e.SetPolicy(networkPolicy(t, "shop/p", `{podSelector: {}, policyTypes: [Egress], egress: [
		{to: [{podSelector: {matchLabels: {app: web}}}]}, {to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8]}}]}]}`))
	for _, s := range []struct{ name, ip, backend string }{
		{"shop/web", "10.96.0.1", "10.0.0.2"}, {"shop/other", "10.96.0.2", "10.0.0.9"},
	} {
		e.SetService(Service{Name: s.name, Frontends: []Frontend{{
			Addresses: []netip.Addr{address(s.ip)},
			Protocol:  TCP,
			Port:      80,
			Backends:  []Backends{{[]netip.Addr{address(s.backend)}, 80}},
		}}})
	}
	return e
}

func (e *Engine) mustAgree(t *testing.T, what string) {
	t.Helper()
	e.Compile()
	l := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
	for to, want := range map[string]Action{
		"10.96.0.1": Allow,
		"10.96.0.2": Deny,
		"10.0.0.2":  Allow,
		"10.0.0.9":  Deny,
		"192.0.2.1": Allow,
		"203.0.0.1": Allow,
	} {
		if r := l.Decide(address(to), TCP, 80); r.Action != want {
			t.Errorf("%s: to %s: %+v", what, to, r)
		}
	}
	if size := l.Size(false); size > maxRules {
		t.Errorf("%s: %d rules", what, size)
	}
}

// A pod reaches itself by a cluster IP. Users choose external addresses, so there the policy decides about its own
// address, too.
func TestPodReachesItselfByClusterIPsOnly(t *testing.T) {
	e := victim(t)
	itself := []Backends{{[]netip.Addr{address("10.0.0.1")}, 80}}
	e.SetService(Service{Name: "shop/self", Frontends: []Frontend{
		{Addresses: []netip.Addr{address("10.96.0.7")}, Protocol: TCP, Port: 80, Backends: itself},
		{Addresses: []netip.Addr{address("203.0.113.9")}, External: true, Protocol: TCP, Port: 80, Backends: itself},
	}})
	e.Compile()
	l := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
	for to, want := range map[string]Action{
		"10.96.0.7":    Allow,
		"203.0.113.9":  Deny,
		"203.0.113.10": Allow,
		"10.0.0.1":     Deny,
	} {
		if r := l.Decide(address(to), TCP, 80); r.Action != want {
			t.Errorf("to %s: %+v", to, r)
		}
	}
}

// A Service of another namespace is over the limits: it is denied, whatever its size, and nothing else changes.
func TestServiceOverALimitIsDeniedAlone(t *testing.T) {
	for _, addresses := range []int{800, 5000, 10_000} {
		e := victim(t)
		e.mustAgree(t, "before")
		e.SetService(hostile("evil/s", 100, addresses))
		began := time.Now()
		e.mustAgree(t, fmt.Sprint(addresses, " addresses"))
		t.Logf("100 x %d: %s, %d rules of the dataplane", addresses, time.Since(began),
			e.Lists()[ID{"shop", "client"}]["eth0"][Egress].Size(false))
		l := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
		if r := l.Decide(address("203.0.0.2"), TCP, 1000); r.Action != Deny {
			t.Errorf("the Service with %d addresses is not denied: %+v", addresses, r)
		}
		if x := e.Excess(); len(x) != 1 || !strings.Contains(x[0].String(), "Service evil/s") {
			t.Errorf("%d addresses: %v", addresses, x)
		}
		e.DeleteService("evil/s")
		if e.mustAgree(t, "after"); len(e.Excess()) != 0 {
			t.Errorf("after: %v", e.Excess())
		}
	}
}

// One namespace uses its share only: its Services are denied, those of others are as before.
func TestManyServicesOfANamespaceTakeTheirShareOnly(t *testing.T) {
	e := victim(t)
	for n := range 3000 {
		s := hostile(fmt.Sprint("evil/s", n), 20, 1)
		for i := range s.Frontends {
			s.Frontends[i].External = false
			s.Frontends[i].Addresses = []netip.Addr{netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})}
		}
		e.SetService(s)
	}
	e.mustAgree(t, "many")
	l := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
	for n := range 3000 {
		if r := l.Decide(netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}), TCP, 1000); r.Action != Deny {
			t.Fatalf("Service %d is open: %+v", n, r)
		}
	}
	if len(e.Excess()) == 0 {
		t.Error("no limit was hit")
	}
}

// bigPolicy allows from n addresses to m ports of all pods.
func bigPolicy(t testing.TB, name string, n, m int) Policy {
	return networkPolicy(t, name, bigSpec("{}", n, m))
}

// bigSpec allows from n addresses to m ports of the pods that a selector selects.
func bigSpec(selector string, n, m int) string {
	var from, ports []string
	for i := range n {
		from = append(from, fmt.Sprintf("{ipBlock: {cidr: 198.18.%d.%d/32}}", i/100, 2*(i%100)))
	}
	for i := range m {
		ports = append(ports, fmt.Sprintf("{port: %d}", 1000+2*i))
	}
	return fmt.Sprintf("{podSelector: %s, policyTypes: [Ingress], ingress: [{from: [%s], ports: [%s]}]}",
		selector, strings.Join(from, ", "), strings.Join(ports, ", "))
}

func TestPolicyOverALimitIsolatesAndLeavesOthersAlone(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPolicy(bigPolicy(t, "a/small", 2, 2))
	e.SetPolicy(bigPolicy(t, "a/big", 300, 300))
	e.Compile()
	l := e.Lists()[ID{"a", "p"}]["eth0"][Ingress]
	for from, want := range map[string]Action{"198.18.0.0": Allow, "198.18.0.4": Deny, "192.0.2.1": Deny} {
		if r := l.Decide(address(from), TCP, 1000); r.Action != want {
			t.Errorf("from %s: %+v", from, r)
		}
	}
	x := e.Excess()
	if len(x) != 1 || x[0].Of != "NetworkPolicy a/big" || x[0].Size != 90_000 || x[0].Limit != DefaultLimits.Own {
		t.Errorf("excess %+v", x)
	}
	if r := l.Decide(address("192.0.2.1"), TCP, 1); !strings.Contains(r.Origin,
		"NetworkPolicy a/big (over the limit of rules)") {
		t.Errorf("origin %q", r.Origin)
	}
	e.DeletePolicy(Ref{Network, "a", "small"})
	e.Compile()
	if r := e.Lists()[ID{"a", "p"}]["eth0"][Ingress].Decide(address("198.18.0.0"), TCP, 1000); r.Action != Deny {
		t.Errorf("only the big policy: %+v", r)
	}
	e.SetPolicy(bigPolicy(t, "a/big", 300, 3))
	e.Compile()
	if r := e.Lists()[ID{"a", "p"}]["eth0"][Ingress].Decide(address("198.18.0.4"), TCP, 1000); r.Action != Allow ||
		len(e.Excess()) != 0 {
		t.Errorf("the policy fits again: %+v, %v", r, e.Excess())
	}
}

// The size of a rule in memory is the sum of its sets, also if their product exceeds memory.
func TestRulesGrowByTheSumOfPeersAndPorts(t *testing.T) {
	e := NewEngine(Config{
		Limits: Limits{
			Own: 1 << 40, Node: 1 << 41, AllNamespaces: 1 << 41, AllServices: 1 << 41,
			ReadLimits: ReadLimits{Effort: 1 << 30},
		},
	})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPolicy(bigPolicy(t, "a/big", 5000, 5000))
	e.Compile()
	l := e.Lists()[ID{"a", "p"}]["eth0"][Ingress]
	if len(l.Rules) != 2 || l.Size(false) != 25_000_002 {
		t.Errorf("%d rules of %d of the dataplane, want 2 of 25,000,002", len(l.Rules), l.Size(false))
	}
}

func TestDeniedDestinationsOfManyNodesAreBounded(t *testing.T) {
	var denied []Denied
	for n := range 20_000 {
		denied = append(denied, Denied{
			Name:     "agents",
			Prefix:   netaddr.Single(netip.AddrFrom4([4]byte{172, 16, byte(n >> 7), byte(n << 1)})),
			Protocol: TCP,
			Ports:    Range{9465, 9465},
		})
	}
	metadata := Denied{Name: "metadata", Prefix: netip.MustParsePrefix("169.254.169.254/32")}
	e := NewEngine(Config{Denied: append(denied, metadata)})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.Compile()
	l := e.Lists()[ID{"a", "p"}]["eth0"][Egress]
	if l.Size(false) > DefaultLimits.Fixed || len(l.Rules) != 3 {
		t.Errorf("%d rules of %d", len(l.Rules), l.Size(false))
	}
	for _, k := range []struct {
		to   string
		port uint16
		want Action
	}{{"172.16.0.2", 9465, Deny}, {"172.16.0.2", 80, Allow}, {"169.254.169.254", 80, Deny}} {
		if r := l.Decide(address(k.to), TCP, k.port); r.Action != k.want {
			t.Errorf("%+v: %+v", k, r)
		}
	}
}

// Thousands of policies that select one pod take the share of their namespace, and their names stay out of
// explanations.
func TestThousandsOfPoliciesOfANamespaceAreBounded(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	e.SetPod(podAt("b/p", true, "10.0.0.2"))
	for n := range 3000 {
		e.SetPolicy(bigPolicy(t, fmt.Sprintf("a/n%04d", n), 10, 2))
	}
	e.Compile()
	l := e.Lists()[ID{"a", "p"}]["eth0"][Ingress]
	if size := l.Size(false); size > DefaultLimits.Own+10 {
		t.Errorf("%d rules", size)
	}
	if r := l.Decide(address("192.0.2.1"), TCP, 1); r.Action != Deny || len(r.Origin) > 600 {
		t.Errorf("%s with an origin of %d bytes", r.Action, len(r.Origin))
	}
	if lists := e.Lists()[ID{"b", "p"}]; len(lists) != 0 {
		t.Errorf("another namespace has %v", lists)
	}
}

// Where a namespace has more addresses than its share, prefixes are denied, and Services of other namespaces in them
// are as before.
func TestServicesBesideDeniedPrefixesAreAsBefore(t *testing.T) {
	limits := DefaultLimits
	limits.Closed = 4
	limits.NamespaceLookups = 100
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("shop/client", true, "10.0.0.1"))
	e.SetPod(podAt("shop/web", false, "10.0.0.2", "app=web"))
	e.SetPolicy(networkPolicy(t, "shop/p", `{podSelector: {}, policyTypes: [Egress], egress: [
		{to: [{podSelector: {matchLabels: {app: web}}}]}, {to: [{ipBlock: {cidr: 10.96.0.0/16}}]}]}`))
	at := func(name, ip, backend string) Service {
		return Service{Name: name, Frontends: []Frontend{{
			Addresses: []netip.Addr{address(ip)},
			Protocol:  TCP,
			Port:      80,
			Backends:  []Backends{{[]netip.Addr{address(backend)}, 80}},
		}}}
	}
	e.SetService(at("shop/web", "10.96.0.7", "10.0.0.2"))
	e.SetService(at("shop/other", "10.96.0.9", "10.0.0.9"))
	for n := range 100 {
		e.SetService(at(fmt.Sprintf("evil/s%03d", n), fmt.Sprintf("10.96.0.%d", 2*n), "10.0.0.9"))
	}
	e.Compile()
	l := e.Lists()[ID{"shop", "client"}]["eth0"][Egress]
	for to, want := range map[string]Action{
		"10.96.0.7":   Allow,
		"10.96.0.9":   Deny,
		"10.96.0.2":   Deny,
		"10.96.0.198": Deny,
		"10.96.9.9":   Allow,
	} {
		if r := l.Decide(address(to), TCP, 80); r.Action != want {
			t.Errorf("to %s: %+v", to, r)
		}
	}
}

// A large rule of an AdminNetworkPolicy that denies or passes denies more, and one that allows is left out.
func TestLargeRulesOfAdminNetworkPoliciesAreClosed(t *testing.T) {
	rule := func(a Action, n int) Rule {
		var remotes []netip.Prefix
		for i := range n {
			remotes = append(remotes, netaddr.Single(netip.AddrFrom4([4]byte{10, 1, byte(i >> 7), byte(i << 1)})))
		}
		return Rule{
			Action:  a,
			Remotes: remotes,
			Ports:   []PortRange{{TCP, Range{80, 80}}, {TCP, Range{90, 90}}},
			Origin:  a.String(),
		}
	}
	size := func(r *Rule) int { return r.Size(false) }
	for _, tt := range []struct {
		action Action
		n      int
		want   string // the action and size of each rule
	}{
		{Deny, 60, "[deny 4 deny 60]"}, {Pass, 60, "[deny 4 deny 60]"}, {Allow, 60, "[deny 4]"},
		{Deny, 300, "[deny 4 deny 8]"}, {Deny, 20, "[deny 4 deny 40]"},
	} {
		bounded, over := boundAdmin([]Rule{rule(Deny, 2), rule(tt.action, tt.n)}, 100+20, size)
		var got []string
		for i := range bounded {
			got = append(got, fmt.Sprint(bounded[i].Action, " ", bounded[i].Size(false)))
		}
		if fmt.Sprint(got) != tt.want || (len(over) > 0) != (tt.n > 20) {
			t.Errorf("%s of %d: %v, over %v, want %s", tt.action, tt.n, got, over, tt.want)
		}
	}
}

func TestPolicyWithTooManyPeersToReadIsLeftOut(t *testing.T) {
	limits := DefaultLimits
	limits.Effort = 500
	e := NewEngine(Config{Limits: limits})
	e.SetPod(podAt("a/p", true, "10.0.0.1"))
	for n := range 200 {
		e.SetPod(podAt(fmt.Sprintf("b/p%d", n), false, fmt.Sprintf("10.1.0.%d", n), "app=web"))
	}
	all := `{namespaceSelector: {}}`
	e.SetPolicy(networkPolicy(t, "a/all",
		fmt.Sprintf(`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [%s]}, {from: [%s]}, {from: [%s]}]}`,
			all, all, all)))
	e.SetPolicy(networkPolicy(t, "a/one",
		fmt.Sprintf(`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [%s], ports: [{port: 80}]}]}`, all)))
	e.Compile()
	l := e.Lists()[ID{"a", "p"}]["eth0"][Ingress]
	for port, want := range map[uint16]Action{80: Allow, 81: Deny} {
		if r := l.Decide(address("10.1.0.7"), TCP, port); r.Action != want {
			t.Errorf("port %d: %+v", port, r)
		}
	}
	if x := e.Excess(); len(x) != 1 || x[0].Of != "NetworkPolicy a/all" || x[0].Unit != unitAddresses {
		t.Errorf("excess %+v", x)
	}
	for n := range 150 {
		e.DeletePod(ID{"b", fmt.Sprint("p", n)})
	}
	e.Compile()
	if r := e.Lists()[ID{"a", "p"}]["eth0"][Ingress].Decide(address("10.1.0.199"), TCP, 81); r.Action != Allow {
		t.Errorf("with fewer pods: %+v", r)
	}
}

// Each selector of a peer is compared with all pods, so a policy may have few of them.
func TestPolicyWithTooManySelectorsIsLeftOut(t *testing.T) {
	e := NewEngine(Config{})
	e.SetPod(podAt("a/p", true, "10.0.0.1", "app=p"))
	for n := range 100 {
		e.SetPod(podAt(fmt.Sprintf("b/p%d", n), false, fmt.Sprintf("10.1.0.%d", n), "app=web"))
	}
	with := func(selectors int) Policy {
		var peers []string
		for n := range selectors {
			peers = append(peers,
				fmt.Sprintf(
					"{namespaceSelector: {}, podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [x%d]}]}}",
					n))
		}
		return networkPolicy(t, "a/n",
			fmt.Sprintf("{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [%s]}]}",
				strings.Join(peers, ", ")))
	}
	from := func() Action {
		e.Compile()
		return e.Lists()[ID{"a", "p"}]["eth0"][Ingress].Decide(address("10.1.0.7"), TCP, 80).Action
	}
	e.SetPolicy(with(maxSelectors))
	if from() != Allow || len(e.Excess()) != 0 {
		t.Errorf("%d selectors: %v", maxSelectors, e.Excess())
	}
	before := e.work.Matches
	e.SetPolicy(with(20 * maxSelectors))
	if from() != Deny || len(e.Excess()) != 1 {
		t.Errorf("more selectors: %v", e.Excess())
	}
	if n := e.work.Matches - before; n > 200 {
		t.Errorf("%d comparisons for a policy that is left out", n)
	}
	e.SetPolicy(with(1))
	if from() != Allow || len(e.Excess()) != 0 {
		t.Errorf("one selector: %v", e.Excess())
	}
}
