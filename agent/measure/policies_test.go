package measure

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/weftnet/weft/dataplane/vpp"
	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/metrics"
	"github.com/weftnet/weft/wire"
)

// node is a view of interfaces with ACLs, and the dataplane's counters.
type node struct {
	kvscheduler.View
	interfaces map[string]wire.InterfaceACL
	acls       map[string]wire.ACL
	indices    map[string]vpp.ACLIndex
	matches    map[vpp.ACLIndex][]vpp.Matches
	err        error
}

func (n *node) All(kvscheduler.Kind) iter.Seq2[string, kvscheduler.Status] {
	return func(yield func(string, kvscheduler.Status) bool) {
		for name := range n.interfaces {
			if !yield(name, kvscheduler.Status{}) {
				return
			}
		}
	}
}

func (n *node) Applied(r kvscheduler.Ref) (v, meta any, ok bool) {
	if r.Kind == wire.KindInterfaceACL {
		return n.interfaces[r.Name], nil, true
	}
	return nil, n.indices[r.Name], true
}

func (n *node) Desired(r kvscheduler.Ref) (any, bool) { return n.acls[r.Name], true }

// counts sets the packets of an ACL's rules.
func (n *node) counts(index vpp.ACLIndex, packets ...uint64) {
	n.matches[index] = nil
	for _, p := range packets {
		n.matches[index] = append(n.matches[index], vpp.Matches{Packets: p})
	}
}

// shared is a node on which two interfaces have the same ACL for what the pod receives, with a rule of policy a and the
// rest.
func shared() *node {
	rules := []wire.ACLRule{
		{Family: netaddr.IP4, Permit: true, Origin: "NetworkPolicy shop/a ingress[0]"}, {
			Family: netaddr.IP4,
			Permit: true,
			Origin: "NetworkPolicy shop/a ingress[1]",
		},
		{Family: netaddr.IP4, Origin: "NetworkPolicy shop/a, NetworkPolicy shop/b ingress: no rule allows it"}, {
			Family: netaddr.IP4,
			Permit: true,
		},
	}
	n := &node{
		interfaces: map[string]wire.InterfaceACL{"i1": {Output: []string{"x"}}, "i2": {Output: []string{"x"}}},
		acls:       map[string]wire.ACL{"x": {Rules: rules}, "y": {Rules: rules[:1]}},
		indices:    map[string]vpp.ACLIndex{"x": 4, "y": 5},
		matches:    make(map[vpp.ACLIndex][]vpp.Matches),
	}
	n.counts(4, 3, 4, 5, 9)
	return n
}

const (
	ofA   = "NetworkPolicy shop/a ingress allow"
	ofAll = "NetworkPolicy shop/a, NetworkPolicy shop/b ingress deny"
)

func (n *node) policies() *PolicyCounters {
	return NewPolicyCounters(func() kvscheduler.View { return n },
		func(context.Context) (map[vpp.ACLIndex][]vpp.Matches, error) { return n.matches, n.err })
}

// checkTotals compares the totals of the two series.
func checkTotals(t *testing.T, p *PolicyCounters, condition string, want map[string]uint64) {
	t.Helper()
	all, err := p.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, c := range all {
		got[c.Policy+" "+c.Direction+" "+c.Action] = c.Packets
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", condition, got, want)
	}
}

func TestSharedACLsCountOnceAndTotalsOnlyGrow(t *testing.T) {
	n := shared()
	p := n.policies()
	checkTotals(t, p, "two interfaces with one ACL", map[string]uint64{ofA: 7, ofAll: 5})
	checkTotals(t, p, "the same counters", map[string]uint64{ofA: 7, ofAll: 5})
	n.counts(4, 4, 4, 6, 9)
	checkTotals(t, p, "more packets", map[string]uint64{ofA: 8, ofAll: 6})
	n.interfaces["i2"] = wire.InterfaceACL{Output: []string{"y"}}
	n.counts(5, 2)
	checkTotals(t, p, "another ACL with the same policy", map[string]uint64{ofA: 10, ofAll: 6})
	delete(n.interfaces, "i1")
	n.counts(5, 3)
	checkTotals(t, p, "an ACL less", map[string]uint64{ofA: 11, ofAll: 6})
	n.counts(5, 1)
	checkTotals(t, p, "a restarted dataplane", map[string]uint64{ofA: 12, ofAll: 6})
	n.interfaces["i1"] = wire.InterfaceACL{Output: []string{"x"}}
	n.counts(4, 1, 0, 0, 0)
	checkTotals(t, p, "the first ACL again", map[string]uint64{ofA: 13, ofAll: 6})
	n.counts(4)
	checkTotals(t, p, "an ACL without counters", map[string]uint64{ofA: 13, ofAll: 6})
	n.counts(4, 1, 0, 0, 0)
	checkTotals(t, p, "its counters again", map[string]uint64{ofA: 13, ofAll: 6})
	n.interfaces["i1"], n.acls["x"] = wire.InterfaceACL{Output: []string{"x"}}, wire.ACL{Rules: n.acls["x"].Rules[:2]}
	checkTotals(t, p, "counters of other rules", map[string]uint64{ofA: 13, ofAll: 6})
}

func TestUnreadableCountersAreNoTotals(t *testing.T) {
	n := shared()
	p := n.policies()
	n.err = errors.New("no stats segment")
	if all, err := p.Read(t.Context()); !errors.Is(err, n.err) || all != nil {
		t.Errorf("totals %v, error %v", all, err)
	}
}

func TestTotalsOfVanishedPoliciesAreBounded(t *testing.T) {
	n := shared()
	p := n.policies()
	for i := range maxPolicyTotals {
		p.totals[metrics.PolicySeries{Policy: fmt.Sprint(i)}] = 1
	}
	checkTotals(t, p, "one policy more than the bound", map[string]uint64{ofA: 7, ofAll: 5})
}
