package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	netfilter "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// masquerades is the backend of Weft's table. It neither reads nor writes other tables.
type masquerades struct{}

type masqueradeItem = kvscheduler.Item[wire.Masquerade, struct{}]

func masqueradeDescriptor() kvscheduler.Descriptor[wire.Masquerade, struct{}] {
	return kvscheduler.Descriptor[wire.Masquerade, struct{}]{
		Name: wire.KindMasquerade, Lane: Lane,
		Equal:    sameMasquerade,
		Validate: validateMasquerade,
		Backend:  masquerades{},
	}
}

// sameMasquerade compares address ranges: the kernel does not keep the prefixes that they were written as.
func sameMasquerade(want, have wire.Masquerade) bool {
	if want.Equal(have) {
		return true
	}
	same := sameRules(want, have)
	for _, s := range addressSets {
		same = same && slices.Equal(rangesOf(s.of(want), s.is4), rangesOf(s.of(have), s.is4))
	}
	return same
}

// sameRules reports whether two values have the same rules. Their sets may differ.
func sameRules(a, b wire.Masquerade) bool {
	return a.Link == b.Link && a.Egress == b.Egress && a.Guard.Port == b.Guard.Port && a.Guard.Link == b.Guard.Link
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

func (masquerades) Create(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(writeTable(it.Want))
		}
	}
}

// Update keeps the rules, and so their counters, if only the sets change.
func (masquerades) Update(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err != nil {
			continue
		}
		change := writeTable
		if sameRules(it.Have, it.Want) {
			change = fillSets
		}
		it.Err = refusedTable(change(it.Want))
	}
}

func (masquerades) Delete(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(RemoveMasquerade())
		}
	}
}

// RemoveMasquerade removes Weft's nftables table from the caller's namespace. A missing table is no error.
func RemoveMasquerade() error { return removeTable(ourTable()) }

func removeTable(table *nftables.Table) error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	c.DelTable(table)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete nftables table %s: %w", table.Name, err)
	}
	return nil
}

// Dump finds the table, also if no value is known.
func (masquerades) Dump(_ context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.Masquerade, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.Masquerade, struct{}], error) bool) {
		ref, err := kvscheduler.ParseRef(wire.MasqueradeKey())
		if err != nil {
			yield(kvscheduler.Actual[wire.Masquerade, struct{}]{}, err)
			return
		}
		have, found, err := readTable(knownMasquerades(view, ref))
		if err != nil || found {
			yield(kvscheduler.Actual[wire.Masquerade, struct{}]{Name: ref.Name, V: have}, err)
		}
	}
}

func (m masquerades) Read(ctx context.Context, view kvscheduler.View, _ []string) iter.Seq2[kvscheduler.Actual[wire.Masquerade, struct{}], error] {
	return m.Dump(ctx, view)
}

// knownMasquerades returns the values that the table may have.
func knownMasquerades(view kvscheduler.View, ref kvscheduler.Ref) (values []wire.Masquerade) {
	if v, _, ok := view.Applied(ref); ok {
		if m, is := v.(wire.Masquerade); is {
			values = append(values, m)
		}
	}
	if v, ok := view.Desired(ref); ok {
		if m, is := v.(wire.Masquerade); is {
			values = append(values, m)
		}
	}
	return values
}

// refusedTable marks an error of an nftables transaction, of which the kernel applies all or nothing.
func refusedTable(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		err = fmt.Errorf("%w: load the kernel modules nf_tables, nft_masq and nft_fib_inet", err)
	}
	return refused(err)
}

func prefixesOf(ranges []addressRange) (list []netip.Prefix) {
	for _, r := range ranges {
		list = append(list, r.prefixes()...)
	}
	return list
}

// statusDNAT is IPS_DST_NAT of a connection's status (linux/netfilter/nf_conntrack_common.h).
const statusDNAT = 1 << 5

// Offsets of the addresses in IP headers.
const (
	source4      = 12
	destination4 = 16
	source6      = 8
	destination6 = 24
)

// register1 is the first register of 16 bytes, which all rules use.
const register1 = 1

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

// link compares the link of one direction with a name.
func link(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: register1}, &expr.Cmp{Op: op, Register: register1, Data: padded},
	}
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

// isLocal matches packets with a source or destination, depending on the flags of the expression, that is an address of the node.
func isLocal(which *expr.Fib) []expr.Any {
	which.Register, which.ResultADDRTYPE = register1, true
	return []expr.Any{
		which,
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

func family46(is4 bool) []expr.Any {
	number := byte(unix.NFPROTO_IPV6)
	if is4 {
		number = unix.NFPROTO_IPV4
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register1}, &expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{number}},
	}
}

func fromPods(is4 bool) []expr.Any { return inSet("pods", source(is4), is4, false) }

// notTo matches destinations that are not in the set.
func notTo(set string, is4 bool) []expr.Any { return inSet(set, destination(is4), is4, true) }

// inSet matches packets with an address, at an offset of the IP header, that is in the set of its family; with not, that is not.
func inSet(set string, at uint32, is4, not bool) []expr.Any {
	name := set + "6"
	if is4 {
		name = set + "4"
	}
	return []expr.Any{addressAt(at, is4), &expr.Lookup{SourceRegister: register1, SetName: name, Invert: not}}
}

func source(is4 bool) uint32 {
	if is4 {
		return source4
	}
	return source6
}

func destination(is4 bool) uint32 {
	if is4 {
		return destination4
	}
	return destination6
}

func address(at, length uint32) *expr.Payload {
	return &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: length, DestRegister: register1}
}

func masquerade() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Masq{}} }

// hasRules reports whether the table has exactly the chains and rules of a value.
func hasRules(c *nftables.Conn, table *nftables.Table, v wire.Masquerade) (bool, error) {
	for _, chain := range masqueradeChains(table, v) {
		if exists, err := chain.exists(c); err != nil || !exists {
			return false, err
		}
	}
	return true, nil
}

// exists reports whether the table has the chain with exactly its rules.
func (t tableChain) exists(c *nftables.Conn) (bool, error) {
	chains, err := c.ListChainsOfTableFamily(t.Table.Family) // the library's ListChain does not report a missing chain
	if err != nil {
		return false, fmt.Errorf("read nftables chain %s: %w", t.Name, err)
	}
	at := slices.IndexFunc(chains, func(c *nftables.Chain) bool { return c.Table.Name == t.Table.Name && c.Name == t.Name })
	if at < 0 {
		return false, nil
	}
	chain := chains[at]
	if chain.Type != t.Type || chain.Hooknum == nil || *chain.Hooknum != *t.Hooknum || chain.Priority == nil || *chain.Priority != *t.Priority {
		return false, nil
	}
	rules, err := c.GetRules(t.Table, chain)
	if err != nil {
		return false, fmt.Errorf("read rules of nftables chain %s: %w", t.Name, err)
	}
	return slices.EqualFunc(rules, t.rules, func(have *nftables.Rule, want []expr.Any) bool {
		return slices.EqualFunc(have.Exprs, want, sameExpression)
	}), nil
}

// sameExpression compares an expression of the kernel with a desired one. It ignores the values of counters. The library does not decode
// whether a payload expression reads or writes.
func sameExpression(have, want expr.Any) bool {
	if _, counts := want.(*expr.Counter); counts {
		_, does := have.(*expr.Counter)
		return does
	}
	if h, is := have.(*expr.Payload); is && h.SourceRegister != 0 {
		write := *h
		write.OperationType = expr.PayloadWrite
		have = &write
	}
	return reflect.DeepEqual(have, want)
}

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

// perMessage bounds the elements of a set in one message. A message has a 16-bit length, an element at most 48 bytes.
const perMessage = 1000

// largestBatch is the size of the socket's send buffer: a transaction is one write of any size. Without root, the kernel may allow less.
const largestBatch = 4 << 20

// nftConn connects to nftables in the namespace of the calling thread.
func nftConn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netfilter.Conn) error {
		return errors.Join(c.SetWriteBuffer(largestBatch), c.SetDeadline(time.Now().Add(socketLimit)))
	}))
}

func ourTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
}

// writeTable replaces the table in one transaction.
func writeTable(v wire.Masquerade) error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	table := ourTable()
	c.AddTable(table) // a missing table cannot be deleted
	c.DelTable(table)
	c.AddTable(table)
	for _, s := range addressSets {
		set := s.in(table)
		if err := errors.Join(c.AddSet(set, nil), s.fill(c, set, v)); err != nil {
			return fmt.Errorf("create nftables set %s: %w", s.name, err)
		}
	}
	for _, chain := range masqueradeChains(table, v) {
		c.AddChain(chain.Chain)
		for _, rule := range chain.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain.Chain, Exprs: rule})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", tableName, err)
	}
	return nil
}

// masqueradeChains returns the chain of the translation and those of the tunnel guard.
func masqueradeChains(table *nftables.Table, v wire.Masquerade) []tableChain {
	return append([]tableChain{{masqueradeChain(table), rulesOf(v)}}, guardChains(table, v)...)
}

func masqueradeChain(table *nftables.Table) *nftables.Chain {
	return &nftables.Chain{
		Name: chainName, Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	}
}

// fillSets replaces the elements of the sets and keeps the rules.
func fillSets(v wire.Masquerade) error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	table := ourTable()
	for _, s := range addressSets {
		set := s.in(table)
		c.FlushSet(set)
		if err := s.fill(c, set, v); err != nil {
			return fmt.Errorf("fill nftables set %s: %w", s.name, err)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("fill the sets of nftables table %s: %w", tableName, err)
	}
	return nil
}

func (s addressSet) in(table *nftables.Table) *nftables.Set {
	kind := nftables.TypeIP6Addr
	if s.is4 {
		kind = nftables.TypeIPAddr
	}
	return &nftables.Set{Table: table, Name: s.name, KeyType: kind, Interval: true}
}

// fill adds the elements of a value to the set. A range up to the family's highest address has no end element.
func (s addressSet) fill(c *nftables.Conn, set *nftables.Set, v wire.Masquerade) error {
	var elements []nftables.SetElement
	for _, r := range rangesOf(s.of(v), s.is4) {
		elements = append(elements, nftables.SetElement{Key: r.first.AsSlice()})
		if after := r.last.Next(); after.IsValid() {
			elements = append(elements, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	for part := range slices.Chunk(elements, perMessage) {
		if err := c.SetAddElements(set, part); err != nil {
			return err
		}
	}
	return nil
}

// readTable reads the table as a value. It takes the fields that only rules show from the known value with the same rules.
func readTable(known []wire.Masquerade) (have wire.Masquerade, found bool, err error) {
	c, err := nftConn()
	if err != nil {
		return have, false, err
	}
	table, err := c.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) || err == nil && table == nil {
		return have, false, nil
	}
	if err != nil {
		return have, false, fmt.Errorf("read nftables table %s: %w", tableName, err)
	}
	complete := true
	for i, list := range []*[]netip.Prefix{&have.Pods, &have.Pods, &have.Exclude, &have.Exclude, &have.Guard.Nodes, &have.Guard.Nodes} {
		prefixes, valid, err := addressSets[i].read(c, table)
		if err != nil {
			return have, false, err
		}
		complete = complete && valid
		*list = append(*list, prefixes...)
	}
	for _, v := range known {
		same, err := hasRules(c, table, v)
		if err != nil {
			return have, false, err
		}
		if complete && same {
			have.Link, have.Egress = v.Link, v.Egress
			have.Guard.Port, have.Guard.Link = v.Guard.Port, v.Guard.Link
		}
	}
	return have, true, nil
}

// read returns the content of the set. valid is false if the set is missing or of another type.
func (s addressSet) read(c *nftables.Conn, table *nftables.Table) (prefixes []netip.Prefix, valid bool, err error) {
	set, err := c.GetSetByName(table, s.name)
	if errors.Is(err, unix.ENOENT) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read nftables set %s: %w", s.name, err)
	}
	elements, err := c.GetSetElements(s.in(table))
	if err != nil {
		return nil, false, fmt.Errorf("read elements of nftables set %s: %w", s.name, err)
	}
	ranges, valid := rangesIn(elements)
	return prefixesOf(ranges), valid && set.Interval, nil
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
