package linux

import (
	"context"
	"errors"
	"fmt"
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
)

// perMessage bounds the elements of a set in one message. A message has a 16-bit length, an element at most 48 bytes.
const perMessage = 1000

// largestBatch is the size of the socket's send buffer: a transaction is one write of any size. Without root, the
// kernel may allow less.
const largestBatch = 4 << 20

// nftConn connects to nftables in the namespace of the calling thread.
func nftConn() (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(c *netfilter.Conn) error {
		return errors.Join(c.SetWriteBuffer(largestBatch), c.SetDeadline(time.Now().Add(socketLimit)))
	}))
}

// nftTable is a table of nftables with its content.
type nftTable struct {
	*nftables.Table
	sets   []nftSet
	chains []nftChain
}

// nftSet is a set with its elements.
type nftSet struct {
	*nftables.Set
	elements []nftables.SetElement
}

// nftChain is a chain with its rules.
type nftChain struct {
	*nftables.Chain
	rules [][]expr.Any
}

// replace replaces the table in one transaction.
func (t nftTable) replace() error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	c.AddTable(t.Table) // a missing table cannot be deleted
	c.DelTable(t.Table)
	c.AddTable(t.Table)
	for _, s := range t.sets {
		if err := errors.Join(c.AddSet(s.Set, nil), s.fill(c)); err != nil {
			return fmt.Errorf("create nftables set %s: %w", s.Name, err)
		}
	}
	for _, chain := range t.chains {
		c.AddChain(chain.Chain)
		for _, rule := range chain.rules {
			c.AddRule(&nftables.Rule{Table: t.Table, Chain: chain.Chain, Exprs: rule})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", t.Name, err)
	}
	return nil
}

// refill replaces the elements of the sets and keeps the rules.
func (t nftTable) refill() error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	for _, s := range t.sets {
		c.FlushSet(s.Set)
		if err := s.fill(c); err != nil {
			return fmt.Errorf("fill nftables set %s: %w", s.Name, err)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("fill the sets of nftables table %s: %w", t.Name, err)
	}
	return nil
}

func (s nftSet) fill(c *nftables.Conn) error {
	for part := range slices.Chunk(s.elements, perMessage) {
		if err := c.SetAddElements(s.Set, part); err != nil {
			return err
		}
	}
	return nil
}

// readSet reads the elements of a set. It returns nil for a missing set.
func readSet(c *nftables.Conn, set *nftables.Set) (*nftSet, error) {
	found, err := c.GetSetByName(set.Table, set.Name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read nftables set %s: %w", set.Name, err)
	}
	elements, err := c.GetSetElements(set)
	if err != nil {
		return nil, fmt.Errorf("read elements of nftables set %s: %w", set.Name, err)
	}
	return &nftSet{found, elements}, nil
}

// hasChains reports whether the kernel has the chains of the table with exactly their rules.
func (t nftTable) hasChains(c *nftables.Conn) (bool, error) {
	for _, chain := range t.chains {
		if exists, err := chain.exists(c); err != nil || !exists {
			return false, err
		}
	}
	return true, nil
}

// exists reports whether the table has the chain with exactly its rules.
func (t nftChain) exists(c *nftables.Conn) (bool, error) {
	chains, err := c.ListChainsOfTableFamily(t.Table.Family) // the library's ListChain does not report a missing chain
	if err != nil {
		return false, fmt.Errorf("read nftables chain %s: %w", t.Name, err)
	}
	at := slices.IndexFunc(chains, func(c *nftables.Chain) bool {
		return c.Table.Name == t.Table.Name && c.Name == t.Name
	})
	if at < 0 {
		return false, nil
	}
	chain := chains[at]
	if chain.Type != t.Type || chain.Hooknum == nil || *chain.Hooknum != *t.Hooknum || chain.Priority == nil ||
		*chain.Priority != *t.Priority {
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

// sameExpression compares an expression of the kernel with a desired one. It ignores the values of counters. The
// library does not decode whether a payload expression reads or writes.
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

func removeTable(table *nftables.Table) error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	c.DelTable(table)
	return tableDeleted(table.Name, c.Flush())
}

// tableDeleted returns the error of the deletion of a table; nil if there is no such table.
func tableDeleted(name string, err error) error {
	if err == nil || isNoTable(err) {
		return nil
	}
	return fmt.Errorf("delete nftables table %s: %w", name, err)
}

// isNoTable reports whether an error says that a table does not exist, or cannot, since the kernel lacks nf_tables.
func isNoTable(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) }

// refusedTable marks an error of an nftables transaction, of which the kernel applies all or nothing.
func refusedTable(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) {
		err = fmt.Errorf("%w: load the kernel modules nf_tables, nft_masq, nft_nat and nft_fib_inet", err)
	}
	return refused(err)
}

// onlyTable has the functions of a kind with one object, a table in family inet.
type onlyTable[V interface{ Equal(V) bool }] struct {
	name     string
	table    func(V) nftTable
	withSets func(v, sets V) V // v with the content of the sets of the other value
	// readSets returns a value with the content of the sets. complete is false if a set is missing or invalid.
	readSets func(c *nftables.Conn) (v V, complete bool, err error)
}

// backend returns the backend of the kind. key is the key of the only object.
func (t onlyTable[V]) backend(key string) simple[V, struct{}] {
	ref := parseRef(key)
	return simple[V, struct{}]{
		kind: ref.Kind, only: ref.Name,
		create: func(it *kvscheduler.Item[V, struct{}]) error { return refusedTable(t.table(it.Want).replace()) },
		update: func(it *kvscheduler.Item[V, struct{}]) error {
			if t.withSets(it.Have, it.Want).Equal(it.Want) { // the rules, and so their counters, stay
				return refusedTable(t.table(it.Want).refill())
			}
			return refusedTable(t.table(it.Want).replace())
		},
		remove: func(context.Context, *kvscheduler.Item[V, struct{}]) error {
			return refusedTable(removeTable(inetTable(t.name)))
		},
		read: func(view kvscheduler.View, name string) (v V, _ struct{}, found bool, err error) {
			v, found, err = t.read(knownValues[V](view, ref.Kind, name))
			return v, struct{}{}, found, err
		},
	}
}

// read reads the table as a value. It takes the fields that only rules show from the known value with the same rules.
func (t onlyTable[V]) read(known []V) (have V, found bool, err error) {
	c, err := nftConn()
	if err != nil {
		return have, false, err
	}
	table, err := c.ListTableOfFamily(t.name, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) || err == nil && table == nil {
		return have, false, nil
	}
	if err != nil {
		return have, false, fmt.Errorf("read nftables table %s: %w", t.name, err)
	}
	have, complete, err := t.readSets(c)
	if err != nil {
		return have, false, err
	}
	for _, v := range known {
		same, err := t.table(v).hasChains(c)
		if err != nil {
			return have, false, err
		}
		if complete && same {
			have = t.withSets(v, have)
		}
	}
	return have, true, nil
}

func inetTable(name string) *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: name}
}

// Offsets of the addresses in IP headers.
const (
	source4      = 12
	destination4 = 16
	source6      = 8
	destination6 = 24
)

// The registers of 16 bytes that rules use: nearly all only the first.
const (
	register1 = 1
	register2 = 2
)

// link compares the link of one direction with a name.
func link(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return []expr.Any{
		&expr.Meta{Key: key, Register: register1}, &expr.Cmp{Op: op, Register: register1, Data: padded},
	}
}

// isLocal matches packets with a source or destination, depending on the flags of the expression, that is an address of
// the node.
func isLocal(which *expr.Fib) []expr.Any {
	which.Register = register1
	which.ResultADDRTYPE = true
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
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register1}, &expr.Cmp{
			Op:       expr.CmpOpEq,
			Register: register1,
			Data:     []byte{number},
		},
	}
}

// inSet matches packets with an address, at an offset of the IP header, that is in the set of its family; with not,
// that is not.
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

func addressAt(at uint32, is4 bool) *expr.Payload {
	if is4 {
		return address(at, 4)
	}
	return address(at, 16)
}

// isAddress matches packets with this address at an offset of the IP header. A rule before it has matched the family.
func isAddress(at uint32, a netip.Addr) []expr.Any {
	return []expr.Any{addressAt(at, a.Is4()), &expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: a.AsSlice()}}
}

func udpTo(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: register1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}

func drop() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }
