package measure

import (
	"context"
	"strings"
	"sync"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/metrics"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// maxPolicyTotals bounds the totals of policies that no ACL has any more.
const maxPolicyTotals = 1024

// PolicyCounters counts packets by policy. The dataplane counts by ACL, from 0 for each new one, and a change of a
// policy replaces ACLs; the totals only grow.
type PolicyCounters struct {
	view    func() kvscheduler.View
	matches func(context.Context) (map[vpp.ACLIndex][]vpp.Matches, error)

	mu     sync.Mutex
	totals map[metrics.PolicySeries]uint64
	last   map[countedACL]map[metrics.PolicySeries]uint64 // at the last reading
}

// countedACL identifies an ACL for as long as its counters grow: a name identifies the content of the ACL.
type countedACL struct {
	name  string
	index vpp.ACLIndex
}

// NewPolicyCounters returns totals of 0. matches is Statistics.ACLMatches.
func NewPolicyCounters(
	view func() kvscheduler.View, matches func(context.Context) (map[vpp.ACLIndex][]vpp.Matches, error),
) *PolicyCounters {
	return &PolicyCounters{view: view, matches: matches, totals: make(map[metrics.PolicySeries]uint64)}
}

// Read returns the totals. It fails if the dataplane's counters cannot be read.
func (p *PolicyCounters) Read(ctx context.Context) ([]metrics.PolicyCount, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	matches, err := p.matches(ctx)
	if err != nil {
		return nil, err
	}
	reading := counting{
		view:    p.view(),
		matches: matches,
		last:    p.last,
		now:     make(map[countedACL]map[metrics.PolicySeries]uint64),
	}
	reading.count()
	inUse := make(map[metrics.PolicySeries]bool)
	for acl, counts := range reading.now {
		for series, n := range counts {
			before := p.last[acl][series]
			if n < before { // the dataplane restarted, or has made the ACL again
				before = 0
			}
			p.totals[series] += n - before
			inUse[series] = true
		}
	}
	p.last = reading.now
	p.forgetLocked(inUse)
	var all []metrics.PolicyCount
	for series, n := range p.totals {
		all = append(all, metrics.PolicyCount{PolicySeries: series, Packets: n})
	}
	return all, nil
}

// forgetLocked removes the totals of policies that no ACL has if there are too many: policies may come and go for ever.
func (p *PolicyCounters) forgetLocked(inUse map[metrics.PolicySeries]bool) {
	if len(p.totals) <= maxPolicyTotals {
		return
	}
	for series := range p.totals {
		if !inUse[series] {
			delete(p.totals, series)
		}
	}
}

// counting is one reading of the dataplane's counters.
type counting struct {
	view    kvscheduler.View
	matches map[vpp.ACLIndex][]vpp.Matches
	last    map[countedACL]map[metrics.PolicySeries]uint64
	now     map[countedACL]map[metrics.PolicySeries]uint64
}

// count counts the packets of each ACL by policy. Interfaces that share an ACL have one counter, which counts once.
func (c *counting) count() {
	for list := range c.view.All(wire.KindInterfaceACL) {
		applied, _, _ := c.view.Applied(kvscheduler.Ref{Kind: wire.KindInterfaceACL, Name: list})
		lists, _ := applied.(wire.InterfaceACL)
		for _, name := range lists.Output {
			c.add(name, policy.Ingress)
		}
		for _, name := range lists.Input {
			c.add(name, policy.Egress)
		}
	}
}

// add counts the packets of an ACL for a direction of the pod. An ACL that cannot be counted now keeps its last counts:
// they are in the totals.
func (c *counting) add(name string, d policy.Direction) {
	ref := kvscheduler.Ref{Kind: wire.KindACL, Name: name}
	want, _ := c.view.Desired(ref)
	_, meta, _ := c.view.Applied(ref)
	acl, isACL := want.(wire.ACL)
	index, isIndex := meta.(vpp.ACLIndex)
	id := countedACL{name, index}
	if !isACL || !isIndex {
		return
	}
	sums, ok := vpp.MatchesByOrigin(acl, c.matches[index])
	if !ok {
		c.now[id] = c.last[id]
		return
	}
	counts := make(map[metrics.PolicySeries]uint64)
	for _, s := range sums {
		action := "deny"
		if s.Permit {
			action = "allow"
		}
		counts[metrics.PolicySeries{Policy: policyOf(s.Origin), Direction: d.String(), Action: action}] += s.Packets
	}
	c.now[id] = counts
}

// policyOf returns the policy of a rule's origin, such as "NetworkPolicy shop/db ingress[0]", or several policies that
// isolate a pod together.
func policyOf(origin string) string {
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		for _, end := range []string{"[", ":"} { // no name contains them
			if name, _, found := strings.Cut(origin, " "+d.String()+end); found {
				return name
			}
		}
	}
	return origin
}
