package linux

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Names of Weft's nftables objects.
const (
	tableName = "weft"
	chainName = "postrouting"
)

// addressSet is a set of the table: the prefixes of one family of a list of the value.
type addressSet struct {
	name string
	is4  bool
	of   func(*wire.Masquerade) *[]netip.Prefix
}

// addressSets has two sets for each list.
var addressSets = func() (sets []addressSet) {
	for _, list := range []addressSet{
		{name: "pods", of: func(v *wire.Masquerade) *[]netip.Prefix { return &v.Pods }},
		{name: "exclude", of: func(v *wire.Masquerade) *[]netip.Prefix { return &v.Exclude }},
		{name: "nodes", of: func(v *wire.Masquerade) *[]netip.Prefix { return &v.Guard.Nodes }},
		{name: "clients", of: func(v *wire.Masquerade) *[]netip.Prefix { return &v.Clients.Pods }},
		{name: "client-addresses", of: func(v *wire.Masquerade) *[]netip.Prefix { return &v.Clients.Addresses }},
		{name: "endpoints", of: func(v *wire.Masquerade) *[]netip.Prefix { return &v.Clients.Endpoints }},
	} {
		sets = append(sets, addressSet{list.name + "4", true, list.of}, addressSet{list.name + "6", false, list.of})
	}
	return sets
}()

var masqueradeTable = onlyTable[wire.Masquerade]{
	name: tableName,
	table: func(v wire.Masquerade) nftTable {
		table := nftTable{Table: inetTable(tableName)}
		for _, s := range addressSets {
			table.sets = append(table.sets, nftSet{s.in(table.Table), s.elements(v)})
		}
		table.chains = append(guardChains(table.Table, v), nftChain{masqueradeChain(table.Table), rulesOf(v)},
			clientChain(table.Table, v), connectionChain(table.Table, v))
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
		same = same && slices.Equal(rangesOf(*s.of(&want), s.is4), rangesOf(*s.of(&have), s.is4))
	}
	return same
}

// withSets returns v with the prefixes of another value.
func withSets(v, sets wire.Masquerade) wire.Masquerade {
	for _, s := range addressSets {
		*s.of(&v) = *s.of(&sets)
	}
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
		return fmt.Errorf("link %q of the tunnels has more than %d bytes or is the link of the pods", v.Guard.Link,
			maxLinkName)
	}
	all := slices.Clone(v.Clients.Ranges)
	for _, s := range addressSets {
		all = append(all, *s.of(&v)...)
	}
	for _, p := range all {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("prefix %s is not masked", p)
		}
	}
	if r := v.Clients.Ranges; len(r) > 2 || len(r) == 2 && r[0].Addr().Is4() == r[1].Addr().Is4() {
		return fmt.Errorf("%v are several ranges of a family", r)
	}
	return nil
}

// RemoveMasquerade removes Weft's nftables table from the caller's namespace. A missing table is no error.
func RemoveMasquerade() error { return removeTable(inetTable(tableName)) }

// statusDNAT is IPS_DST_NAT of a connection's status (linux/netfilter/nf_conntrack_common.h).
const statusDNAT = 1 << 5

// rulesOf returns the rules of the chain. Each counts the packets that it translates.
//
//  1. From pods through the node to pods. The node redirected such packets, for example from a Service to a pod.
//     Without translation the reply would bypass the node, with a source address that the sender does not know. For
//     each family with a range: from pods of this node to endpoints, the source becomes the client address.
//  2. Otherwise it becomes the node's.
//  3. From the node to pods, if the node redirected the packet: the node chose the source address for another route. A
//     pod on another node would send the reply along that node's route to this one, not through the dataplane. Late
//     replies to pods are not redirected: their connection has expired, and they must not start another one.
//  4. From pods to other destinations, one rule per family.
func rulesOf(v wire.Masquerade) [][]expr.Any {
	through := through(v.Link)
	var rules [][]expr.Any
	for _, r := range v.Clients.Ranges {
		is4 := r.Addr().Is4()
		rules = append(rules, slices.Concat(
			through, family46(is4), inSet("clients", source(is4), is4, false),
			inSet("endpoints", destination(is4), is4, false), sourceInto(r),
		))
	}
	rules = append(rules,
		slices.Concat(through, masquerade()),
		slices.Concat(link(expr.MetaKeyOIFNAME, expr.CmpOpEq, v.Link), fromNode(), redirected(), masquerade()),
	)
	if !v.Egress {
		return rules
	}
	for _, is4 := range []bool{true, false} {
		rules = append(rules, slices.Concat(
			link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, v.Link),
			family46(is4),
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

// sourceInto replaces the network part of the source by the network part of a range (NETMAP).
func sourceInto(r netip.Prefix) []expr.Any {
	number := uint32(unix.NFPROTO_IPV6)
	if r.Addr().Is4() {
		number = unix.NFPROTO_IPV4
	}
	return []expr.Any{
		&expr.Counter{},
		&expr.Immediate{Register: register1, Data: r.Addr().AsSlice()}, &expr.Immediate{
			Register: register2,
			Data:     netaddr.Last(r).AsSlice(),
		},
		&expr.NAT{
			Type:       expr.NATTypeSourceNAT,
			Family:     number,
			RegAddrMin: register1,
			RegAddrMax: register2,
			Prefix:     true,
		},
	}
}

// behindProxies is the priority of the chain: the first translation of a source wins, and a Service proxy, which
// translates the connections of a pod to itself to the node's address, comes before.
var behindProxies = nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource + 1)

func masqueradeChain(table *nftables.Table) *nftables.Chain {
	return &nftables.Chain{
		Name:     chainName,
		Table:    table,
		Type:     nftables.ChainTypeNAT,
		Hooknum:  nftables.ChainHookPostrouting,
		Priority: behindProxies,
	}
}

// clientChain drops packets to client addresses that belong to no connection: connection tracking has translated the
// others.
func clientChain(table *nftables.Table, v wire.Masquerade) nftChain {
	chain := nftChain{Chain: &nftables.Chain{
		Name:     "clients-forward",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter,
	}}
	for _, r := range v.Clients.Ranges {
		is4 := r.Addr().Is4()
		chain.rules = append(chain.rules, slices.Concat(
			link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link), family46(is4),
			inSet("client-addresses", destination(is4), is4, false), drop(),
		))
	}
	return chain
}

// connectionChain drops TCP packets from pods through the node to pods that belong to no connection. The dataplane
// sends them here while it has no route to a pod, for example during a replay. Translated, they would reach the other
// pod from a host that it does not know, and its reset would end the connection.
func connectionChain(table *nftables.Table, v wire.Masquerade) nftChain {
	return nftChain{
		Chain: &nftables.Chain{
			Name:     "connections-forward",
			Table:    table,
			Type:     nftables.ChainTypeFilter,
			Hooknum:  nftables.ChainHookForward,
			Priority: nftables.ChainPriorityFilter,
		},
		rules: [][]expr.Any{slices.Concat(through(v.Link), inTheMiddleOfTCP(), ofNoConnection(), drop())},
	}
}

// through matches packets that come from a link and leave through it.
func through(name string) []expr.Any {
	return slices.Concat(link(expr.MetaKeyIIFNAME, expr.CmpOpEq, name), link(expr.MetaKeyOIFNAME, expr.CmpOpEq, name))
}

// inTheMiddleOfTCP matches TCP packets that begin no connection.
func inTheMiddleOfTCP() []expr.Any {
	const (
		offset = 13 // of the flags in the TCP header
		syn    = 2
	)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 1, DestRegister: register1},
		&expr.Bitwise{
			SourceRegister: register1,
			DestRegister:   register1,
			Len:            1,
			Mask:           []byte{syn},
			Xor:            []byte{0},
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{0}},
	}
}

// ofNoConnection matches packets that belong to no known connection. Packets that a rule of the node exempts from
// connection tracking may belong to one.
func ofNoConnection() []expr.Any {
	known := expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED | expr.CtStateBitUNTRACKED
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: register1},
		&expr.Bitwise{
			SourceRegister: register1, DestRegister: register1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(known), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: make([]byte, 4)},
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
	for _, r := range rangesOf(*s.of(&v), s.is4) {
		elements = append(elements, nftables.SetElement{Key: r.first.AsSlice()})
		if after := r.last.Next(); after.IsValid() {
			elements = append(elements, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}

func readAddressSets(c *nftables.Conn) (v wire.Masquerade, complete bool, err error) {
	complete = true
	for _, s := range addressSets {
		set, err := readSet(c, s.in(inetTable(tableName)))
		if err != nil {
			return v, false, err
		}
		if set == nil {
			complete = false
			continue
		}
		ranges, valid := rangesIn(set.elements)
		complete = complete && valid && set.Interval
		list := s.of(&v)
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
			ranges = append(ranges, addressRange{a, netaddr.Last(netip.PrefixFrom(a, 0))})
		}
		open = !open
	}
	return ranges, true
}
