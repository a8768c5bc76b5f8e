package linux

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Names of Weft's nftables objects.
const (
	tableName = "weft"
	chainName = "postrouting"
)

// addressSet is a set of the table and the prefixes of a value that belong into it.
type addressSet struct {
	name string
	is4  bool
	of   func(wire.Masquerade) []netip.Prefix
}

var addressSets = []addressSet{
	{"pods4", true, func(v wire.Masquerade) []netip.Prefix { return v.Pods }},
	{"pods6", false, func(v wire.Masquerade) []netip.Prefix { return v.Pods }},
	{"exclude4", true, func(v wire.Masquerade) []netip.Prefix { return v.Exclude }},
	{"exclude6", false, func(v wire.Masquerade) []netip.Prefix { return v.Exclude }},
	{"nodes4", true, func(v wire.Masquerade) []netip.Prefix { return v.Guard.Nodes }},
	{"nodes6", false, func(v wire.Masquerade) []netip.Prefix { return v.Guard.Nodes }},
}

var masqueradeTable = onlyTable[wire.Masquerade]{
	name: tableName,
	table: func(v wire.Masquerade) nftTable {
		table := nftTable{Table: inetTable(tableName)}
		for _, s := range addressSets {
			table.sets = append(table.sets, nftSet{s.in(table.Table), s.elements(v)})
		}
		table.chains = append([]nftChain{{masqueradeChain(table.Table), rulesOf(v)}}, guardChains(table.Table, v)...)
		return table
	},
	withSets: withSets,
	readSets: readAddressSets,
}

func masqueradeDescriptor() kvscheduler.Descriptor[wire.Masquerade, struct{}] {
	return kvscheduler.Descriptor[wire.Masquerade, struct{}]{
		Name: wire.KindMasquerade, Lane: Lane,
		Equal:    sameMasquerade,
		Validate: validateMasquerade,
		Backend:  masqueradeTable.backend(wire.MasqueradeKey()),
	}
}

// sameMasquerade compares address ranges: the kernel does not keep the prefixes that they were written as.
func sameMasquerade(want, have wire.Masquerade) bool {
	if want.Equal(have) {
		return true
	}
	same := withSets(have, want).Equal(want)
	for _, s := range addressSets {
		same = same && slices.Equal(rangesOf(s.of(want), s.is4), rangesOf(s.of(have), s.is4))
	}
	return same
}

// withSets returns v with the prefixes of another value.
func withSets(v, sets wire.Masquerade) wire.Masquerade {
	v.Pods, v.Exclude, v.Guard.Nodes = sets.Pods, sets.Exclude, sets.Guard.Nodes
	return v
}

func validateMasquerade(name string, v wire.Masquerade) error {
	if wire.Key(wire.KindMasquerade, name) != wire.MasqueradeKey() {
		return fmt.Errorf("name %s is not that of the only table, %s", name, tableName)
	}
	if err := validateLink(v.Link); err != nil {
		return err
	}
	if len(v.Guard.Link) > maxLinkName || v.Guard.Link == v.Link {
		return fmt.Errorf("link %q of the tunnels has more than %d bytes or is the link of the pods", v.Guard.Link, maxLinkName)
	}
	for _, p := range slices.Concat(v.Pods, v.Exclude, v.Guard.Nodes) {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("prefix %s is not masked", p)
		}
	}
	return nil
}

// RemoveMasquerade removes Weft's nftables table from the caller's namespace. A missing table is no error.
func RemoveMasquerade() error { return removeTable(inetTable(tableName)) }

// statusDNAT is IPS_DST_NAT of a connection's status (linux/netfilter/nf_conntrack_common.h).
const statusDNAT = 1 << 5

// rulesOf returns the rules of the chain. Each counts the packets that it translates.
//
//  1. From pods through the node to pods. The node redirected such packets, for example from a Service to a pod. Without
//     translation the reply would bypass the node, with a source address that the sender does not know.
//  2. From the node to pods, if the node redirected the packet: the node chose the source address for another route. A pod on another
//     node would send the reply along that node's route to this one, not through the dataplane. Late replies to pods are not redirected:
//     their connection has expired, and they must not start another one.
//  3. From pods to other destinations, one rule per family.
func rulesOf(v wire.Masquerade) [][]expr.Any {
	rules := [][]expr.Any{
		slices.Concat(link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link), link(expr.MetaKeyOIFNAME, expr.CmpOpEq, v.Link), masquerade()),
		slices.Concat(link(expr.MetaKeyOIFNAME, expr.CmpOpEq, v.Link), fromNode(), redirected(), masquerade()),
	}
	if !v.Egress {
		return rules
	}
	for _, is4 := range []bool{true, false} {
		rules = append(rules, slices.Concat(
			link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, v.Link), family46(is4),
			fromPods(is4), notTo("pods", is4), notTo("exclude", is4), masquerade(),
		))
	}
	return rules
}

// redirected matches connections with a destination that this node translated (DNAT).
func redirected() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: register1},
		&expr.Bitwise{
			SourceRegister: register1, DestRegister: register1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(statusDNAT), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register1, Data: make([]byte, 4)},
	}
}

// fromNode matches source addresses of the node.
func fromNode() []expr.Any { return isLocal(&expr.Fib{FlagSADDR: true}) }

func fromPods(is4 bool) []expr.Any { return inSet("pods", source(is4), is4, false) }

// notTo matches destinations that are not in the set.
func notTo(set string, is4 bool) []expr.Any { return inSet(set, destination(is4), is4, true) }

func masquerade() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Masq{}} }

func masqueradeChain(table *nftables.Table) *nftables.Chain {
	return &nftables.Chain{
		Name: chainName, Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	}
}

func (s addressSet) in(table *nftables.Table) *nftables.Set {
	kind := nftables.TypeIP6Addr
	if s.is4 {
		kind = nftables.TypeIPAddr
	}
	return &nftables.Set{Table: table, Name: s.name, KeyType: kind, Interval: true}
}

// elements returns the elements of a value. A range up to the family's highest address has no end element.
func (s addressSet) elements(v wire.Masquerade) (elements []nftables.SetElement) {
	for _, r := range rangesOf(s.of(v), s.is4) {
		elements = append(elements, nftables.SetElement{Key: r.first.AsSlice()})
		if after := r.last.Next(); after.IsValid() {
			elements = append(elements, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}

func readAddressSets(c *nftables.Conn) (v wire.Masquerade, complete bool, err error) {
	complete = true
	for i, list := range []*[]netip.Prefix{&v.Pods, &v.Pods, &v.Exclude, &v.Exclude, &v.Guard.Nodes, &v.Guard.Nodes} {
		set, err := readSet(c, addressSets[i].in(inetTable(tableName)))
		if err != nil {
			return v, false, err
		}
		if set == nil {
			complete = false
			continue
		}
		ranges, valid := rangesIn(set.elements)
		complete = complete && valid && set.Interval
		*list = append(*list, prefixesOf(ranges)...)
	}
	return v, complete, nil
}

// rangesIn returns the ranges of a set's elements, which may be in any order.
func rangesIn(elements []nftables.SetElement) (ranges []addressRange, valid bool) {
	slices.SortFunc(elements, func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) })
	open := false
	for _, e := range elements {
		a, ok := netip.AddrFromSlice(e.Key)
		if !ok || e.IntervalEnd != open {
			return nil, false
		}
		if e.IntervalEnd {
			ranges[len(ranges)-1].last = a.Prev()
		} else {
			ranges = append(ranges, addressRange{a, lastAddress(netip.PrefixFrom(a, 0))})
		}
		open = !open
	}
	return ranges, true
}
