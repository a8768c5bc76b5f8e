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

// masquerades is the backend of the one table that is ours. Tables of others are neither read nor written.
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

// sameMasquerade compares what the values cover: the kernel does not keep in which prefixes it was written.
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

// sameRules reports whether two values differ at most in what is in the sets.
func sameRules(a, b wire.Masquerade) bool {
	return a.Link == b.Link && a.Egress == b.Egress && a.Guard.Port == b.Guard.Port && a.Guard.Link == b.Guard.Link
}

func validateMasquerade(name string, v wire.Masquerade) error {
	if wire.Key(wire.KindMasquerade, name) != wire.MasqueradeKey() {
		return fmt.Errorf("%s: there is one table, %s", name, tableName)
	}
	if v.Link == "" || len(v.Link) >= unix.IFNAMSIZ {
		return fmt.Errorf("link %q is no name for a link", v.Link)
	}
	if len(v.Guard.Link) >= unix.IFNAMSIZ || v.Guard.Link == v.Link {
		return fmt.Errorf("link %q of the tunnels: it has at most %d bytes and is not the link of the pods", v.Guard.Link, unix.IFNAMSIZ-1)
	}
	for _, p := range slices.Concat(v.Pods, v.Exclude, v.Guard.Nodes) {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("prefix %s is not masked", p)
		}
	}
	return nil
}

// Create makes the table, in one step with the removal of what is in its place.
func (masquerades) Create(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(writeTable(it.Want))
		}
	}
}

// Update changes what is in the sets only, unless the rules are others: so they go on counting.
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

// Delete removes the table.
func (masquerades) Delete(ctx context.Context, batch []masqueradeItem) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(RemoveMasquerade())
		}
	}
}

// RemoveMasquerade removes the table of nftables that is Weft's, from the node of the caller. One that is not there is no
// error.
func RemoveMasquerade() error { return removeTable(ourTable()) }

func removeTable(table *nftables.Table) error {
	c, err := tables()
	if err != nil {
		return err
	}
	c.DelTable(table)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove table inet %s of nftables: %w", table.Name, err)
	}
	return nil
}

// Dump finds the table, also one of an earlier agent.
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

// Read is Dump: there is one object.
func (m masquerades) Read(ctx context.Context, view kvscheduler.View, _ []string) iter.Seq2[kvscheduler.Actual[wire.Masquerade, struct{}], error] {
	return m.Dump(ctx, view)
}

// knownMasquerades are the values that the table may have been made of.
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

// refusedTable says that nothing was changed: the kernel takes a batch whole or not at all.
func refusedTable(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		err = fmt.Errorf("%w: the kernel lacks nf_tables, nft_masq or nft_fib_inet", err)
	}
	return refused(err)
}

// prefixesOf gives the prefixes of ranges.
func prefixesOf(ranges []addressRange) (list []netip.Prefix) {
	for _, r := range ranges {
		list = append(list, r.prefixes()...)
	}
	return list
}

// The kernel's numbers that a rule compares with.
const (
	wasRedirected = 1 << 5 // IPS_DST_NAT of a connection's status (linux/netfilter/nf_conntrack_common.h)
	source4       = 12     // where addresses stand in the header of IPv4 ...
	destination4  = 16
	source6       = 8 // ... and of IPv6
	destination6  = 24
)

// register1 is the first register of 16 bytes: what a rule looks at goes there.
const register1 = 1

// rulesOf are the rules of the chain. Each counts what it translates.
//
//  1. From pods through the node to pods. Such packets were redirected on the node, for example from a Service to a pod. Without
//     translation the reply would bypass the node, with a source address that the sender does not know.
//  2. Redirected on the way from the node to pods: the node chose its source for the way to another place. On another
//     node the reply would leave by that node's way to this one, and not come back by the dataplane. Not so redirected are
//     late replies to pods, whose connection is forgotten and must not become another.
//  3. From pods to the rest of the world, one rule a family.
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

// redirected matches connections whose destination was changed on this node.
func redirected() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: register1},
		&expr.Bitwise{
			SourceRegister: register1, DestRegister: register1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(wasRedirected), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register1, Data: make([]byte, 4)},
	}
}

// fromNode matches sources that are the node's own.
func fromNode() []expr.Any { return isLocal(&expr.Fib{FlagSADDR: true}) }

// isLocal matches packets one of whose addresses, which one says the expression, is the node's own.
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

// inSet matches packets one of whose addresses, which stands at an offset of the IP header, is in the set of its family; with
// not, those whose address is not there.
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

// hasRules tells whether the table has the chains and the rules of a value, and no more.
func hasRules(c *nftables.Conn, table *nftables.Table, v wire.Masquerade) (bool, error) {
	for _, chain := range masqueradeChains(table, v) {
		if there, err := chain.isThere(c); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// isThere tells whether the table has the chain with its rules, and no more.
func (t tableChain) isThere(c *nftables.Conn) (bool, error) {
	chains, err := c.ListChainsOfTableFamily(t.Table.Family) // the library's ListChain hides that a chain is missing
	if err != nil {
		return false, fmt.Errorf("read chain %s of nftables: %w", t.Name, err)
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
		return false, fmt.Errorf("read rules of chain %s of nftables: %w", t.Name, err)
	}
	return slices.EqualFunc(rules, t.rules, func(have *nftables.Rule, want []expr.Any) bool {
		return slices.EqualFunc(have.Exprs, want, sameExpression)
	}), nil
}

// sameExpression compares what the kernel gives with what it was given. It counts by itself, and the library does not say
// of a payload which way it goes.
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

// Names of what is ours in nftables.
const (
	tableName = "weft"
	chainName = "postrouting"
)

// addressSet is one of the table's sets, and what of a value is in it.
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

// perMessage is how many elements of a set go into one message, whose length has 16 bits: an element has 48 bytes at most.
const perMessage = 1000

// largestBatch is how much one change may be: the kernel takes a change as one message, however many ranges it has. Where
// not root asks for it, the kernel may leave it at less.
const largestBatch = 4 << 20

// tables reaches nftables in the namespace of the calling thread.
func tables() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netfilter.Conn) error {
		return errors.Join(c.SetWriteBuffer(largestBatch), c.SetDeadline(time.Now().Add(socketLimit)))
	}))
}

func ourTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
}

// writeTable makes the table in place of the one that may be there, in one step.
func writeTable(v wire.Masquerade) error {
	c, err := tables()
	if err != nil {
		return err
	}
	table := ourTable()
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	c.AddTable(table)
	for _, s := range addressSets {
		set := s.in(table)
		if err := errors.Join(c.AddSet(set, nil), s.fill(c, set, v)); err != nil {
			return fmt.Errorf("make set %s of nftables: %w", s.name, err)
		}
	}
	for _, chain := range masqueradeChains(table, v) {
		c.AddChain(chain.Chain)
		for _, rule := range chain.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain.Chain, Exprs: rule})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table inet %s of nftables: %w", tableName, err)
	}
	return nil
}

// masqueradeChains are the chains of the table: that of the translation, and those of the guard.
func masqueradeChains(table *nftables.Table, v wire.Masquerade) []tableChain {
	return append([]tableChain{{masqueradeChain(table), rulesOf(v)}}, guardChains(table, v)...)
}

func masqueradeChain(table *nftables.Table) *nftables.Chain {
	return &nftables.Chain{
		Name: chainName, Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource,
	}
}

// fillSets changes nothing but what is in the sets.
func fillSets(v wire.Masquerade) error {
	c, err := tables()
	if err != nil {
		return err
	}
	table := ourTable()
	for _, s := range addressSets {
		set := s.in(table)
		c.FlushSet(set)
		if err := s.fill(c, set, v); err != nil {
			return fmt.Errorf("fill set %s of nftables: %w", s.name, err)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("fill the sets of table inet %s of nftables: %w", tableName, err)
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

// fill adds the elements that a value has in the set. A range that ends with the family's highest address has no end.
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

// readTable gives the table as a value; link, egress and the guard's port only if the rules are those of one that is known.
func readTable(known []wire.Masquerade) (have wire.Masquerade, found bool, err error) {
	c, err := tables()
	if err != nil {
		return have, false, err
	}
	table, err := c.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) || err == nil && table == nil {
		return have, false, nil
	}
	if err != nil {
		return have, false, fmt.Errorf("read table inet %s of nftables: %w", tableName, err)
	}
	complete := true
	for i, list := range []*[]netip.Prefix{&have.Pods, &have.Pods, &have.Exclude, &have.Exclude, &have.Guard.Nodes, &have.Guard.Nodes} {
		prefixes, there, err := addressSets[i].read(c, table)
		if err != nil {
			return have, false, err
		}
		complete = complete && there
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

// read gives what is in the set; not there if it is missing or of another kind.
func (s addressSet) read(c *nftables.Conn, table *nftables.Table) (prefixes []netip.Prefix, there bool, err error) {
	set, err := c.GetSetByName(table, s.name)
	if errors.Is(err, unix.ENOENT) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read set %s of nftables: %w", s.name, err)
	}
	elements, err := c.GetSetElements(s.in(table))
	if err != nil {
		return nil, false, fmt.Errorf("read elements of set %s of nftables: %w", s.name, err)
	}
	ranges, sound := rangesIn(elements)
	return prefixesOf(ranges), sound && set.Interval, nil
}

// rangesIn are the ranges of a set's elements, which the kernel gives in any order.
func rangesIn(elements []nftables.SetElement) (ranges []addressRange, sound bool) {
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
			ranges = append(ranges, addressRange{a, lastOf(netip.PrefixFrom(a, 0))})
		}
		open = !open
	}
	return ranges, true
}
