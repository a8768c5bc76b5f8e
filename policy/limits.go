package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// maxRules is the number of rules that the dataplane accepts in a list.
const maxRules = 80_000

// Limits bound the lists of an interface. They count rules of the dataplane, which has one for each combination of a
// prefix and a range of ports. Together they are less than maxRules: the dataplane never refuses a list. Traffic of
// rules over a limit is denied, and rules under other limits are not affected:
//
//   - Policies of namespaces are limited together, as they select pods of their own namespace only. The smallest ones
//     are applied first. The others allow no connection, and isolate the pod as before. Peers of other namespaces have
//     fair shares of the rest. If the pods of a namespace have different rules, and more than a node has for a
//     namespace, its further pods are isolated.
//   - Of AdminNetworkPolicies the smallest rules are applied first. Further rules that allow are left out, and further
//     rules that deny or pass become rules that deny more.
//   - Services of all namespaces are in the lists of a pod, so each namespace has a fair share. Further Services are
//     denied.
type Limits struct {
	Own     int // rules of the policies of the pod's namespace, for its main interface
	Further int // likewise, for another interface; see GuardedAny6
	Node    int // likewise, for all lists of a namespace's pods on the node
	// AllNamespaces is likewise for the policies of all namespaces together; AllServices for the rules and denied
	// prefixes of Services.
	AllNamespaces, AllServices int

	Admin    int // rules of AdminNetworkPolicies
	Services int // rules of Services
	Closed   int // prefixes of Services that are denied because they are over a limit
	Fixed    int // rules that no policy overrides
	ReadLimits
}

// ReadLimits bound the inputs that are read for a list.
type ReadLimits struct {
	// addresses of peers that are read for the policies of a namespace, and for policies of kind Admin and Baseline
	Effort  int
	Lookups int // decisions about addresses and endpoints of Services
	// NamespaceLookups is the part of Lookups for the Services of one namespace.
	NamespaceLookups int
	// Selectors is the number of different selectors of peers in the policies of a namespace that select pods of
	// several namespaces.
	Selectors int
}

// DefaultLimits are the limits of an engine without limits in its Config.
var DefaultLimits = Limits{
	Own:           26_000,
	Further:       79_000,
	Node:          400_000,
	AllNamespaces: 600_000,
	AllServices:   600_000,
	Admin:         8_000,
	Services:      14_000,
	Closed:        22_000,
	Fixed:         8_000,
	ReadLimits: ReadLimits{
		Effort: 250_000, Lookups: 1_000_000, NamespaceLookups: 64_000, Selectors: 1024,
	},
}

// Rules of the dataplane for a permitted prefix on a guarded network: its pods may be neither routers nor DHCP servers.
// There, packets from pods are permitted by protocol: see Guard in ipnet/desired. A test of that package compares these
// numbers.
const (
	GuardedAny4  = 7   // IPv4, any protocol
	GuardedAny6  = 252 // IPv6, any protocol
	GuardedPorts = 4   // a range of ports
)

// Size returns the number of rules of the dataplane for a list.
func (l *List) Size(isGuarded bool) int {
	n := 0
	for i := range l.Rules {
		n += l.Rules[i].Size(isGuarded)
	}
	return n
}

// Excess says that a policy or Service is not applied completely because of a limit.
type Excess struct {
	Of     string // such as "NetworkPolicy a/b" or "Service a/b"
	Effect string
	Size   int // the rules or addresses that it needs
	Limit  int // what there is for it and others
	Unit   string
	Pod    ID // a local pod with these rules
}

// String returns the problem and its remedy.
func (x Excess) String() string {
	return fmt.Sprintf(
		"%s: %s, because it needs %d %s, and there are at most %d for all that share the limit: use fewer peers, ports or addresses",
		x.Of, x.Effect, x.Size, x.Unit, x.Limit)
}

// Units and effects of excesses.
const (
	unitRules     = "rules in the dataplane"
	unitAddresses = "addresses of peers"
	unitLookups   = "addresses and endpoints"
	unitSelectors = "different selectors of peers"

	effectIsolates = "it isolates pods, but its rules allow nothing"
	effectExcludes = "it permits nothing to or from pods of "
	effectDenies   = "its largest rules deny more than they say, or allow nothing"
	effectService  = "policed pods cannot contact it"
)

// atMost marks the smallest sizes, as many as have a sum of at most the limit.
func atMost(sizes []int, limit int) []bool {
	order := make([]int, len(sizes))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[a], sizes[b]) })
	fit := make([]bool, len(sizes))
	sum := 0
	for _, n := range order {
		if sizes[n] > limit-sum {
			break
		}
		sum += sizes[n]
		fit[n] = true
	}
	return fit
}

// fairShare returns the largest part for which the sum of the demands, each cut to the part, is at most the total.
func fairShare(demands []int, total int) int {
	sorted := slices.Sorted(slices.Values(demands))
	left := total
	for n, d := range sorted {
		part := left / (len(sorted) - n)
		if d > part {
			return part
		}
		left -= d
	}
	return total
}

// widen returns a rule that denies at least what r matches and has at most the given number of rules of the dataplane.
// It tries in this order: all ports of the same addresses, the same ports of prefixes that contain the addresses, all
// ports of these prefixes, any address.
func (r *Rule) widen(most int, size func(*Rule) int) Rule {
	origin := r.Origin + " (denies more: over the limit of rules)"
	wide := []Rule{
		{Action: Deny, Remotes: r.Remotes, Origin: origin},
		{Action: Deny, Remotes: coarsen(r.Remotes, most/max(1, len(r.Ports))/2), Ports: r.Ports, Origin: origin},
		{Action: Deny, Remotes: coarsen(r.Remotes, most/2), Origin: origin},
		{Action: Deny, Remotes: everywhere, Ports: r.Ports, Origin: origin},
	}
	for n := range wide {
		if size(&wide[n]) <= most {
			return wide[n]
		}
	}
	return Rule{Action: Deny, Remotes: everywhere, Origin: origin}
}

// boundAdmin returns rules of cluster-wide policies of at most limit rules of the dataplane, and the origins of those
// that do not fit. size is the number that a rule needs.
func boundAdmin(rules []Rule, limit int, size func(*Rule) int) (bounded []Rule, over map[string]int) {
	sizes := make([]int, len(rules))
	total := 0
	for n := range rules {
		sizes[n] = size(&rules[n])
		total += sizes[n]
	}
	if total <= limit {
		return rules, nil
	}
	fit := atMost(sizes, limit/2)
	over = make(map[string]int)
	wide := 0 // number of rules to widen
	for n, fits := range fit {
		if !fits {
			over[rules[n].Origin] += sizes[n]
			if rules[n].Action != Allow {
				wide++
			}
		}
	}
	most := limit / 2 / max(1, wide)
	for n := range rules {
		switch r := &rules[n]; {
		case fit[n]:
			bounded = append(bounded, *r)
		case r.Action == Allow:
		case most < 2:
			return append(bounded, Rule{
				Action:  Deny,
				Remotes: everywhere,
				Origin:  r.Origin + " (denies more: over the limit of rules)",
			}), over
		default:
			bounded = append(bounded, r.widen(most, size))
		}
	}
	return bounded, over
}

// boundFixed joins denied destinations with the same reason and ports. Too many addresses become all addresses, if the
// rule is for some ports.
func boundFixed(denied []Denied, limit int) []Rule {
	type key struct {
		name     string
		protocol uint8
		ports    Range
	}
	at := make(map[key]int)
	var rules []Rule
	for _, d := range denied {
		k := key{d.Name, d.Protocol, d.Ports}
		n, known := at[k]
		if !known {
			n = len(rules)
			at[k] = n
			rules = append(rules, Rule{Action: Deny, Ports: rangesOf(d.Protocol, d.Ports), Origin: d.Name})
		}
		rules[n].Remotes = append(rules[n].Remotes, d.Prefix)
	}
	sizes := make([]int, len(rules))
	for n := range rules {
		rules[n].Remotes = aggregate(rules[n].Remotes)
		sizes[n] = rules[n].Size(false)
	}
	for n, fits := range atMost(sizes, limit-2*len(rules)) {
		if !fits && len(rules[n].Ports) > 0 {
			rules[n].Remotes = everywhere
		}
	}
	return rules
}

// coarsen returns prefixes that contain the given ones, which are aggregated: no more than twice the given number.
func coarsen(prefixes []netip.Prefix, most int) []netip.Prefix {
	most = max(1, most)
	for bits := 127; len(prefixes) > 2*most && bits >= 0; bits-- {
		wider := make([]netip.Prefix, len(prefixes))
		for n, p := range prefixes {
			length := p.Bits()
			if p.Addr().Is4() {
				length = min(length, max(0, bits-96))
			} else {
				length = min(length, bits)
			}
			wider[n] = netip.PrefixFrom(p.Addr(), length).Masked()
		}
		prefixes = aggregate(wider)
	}
	return prefixes
}
