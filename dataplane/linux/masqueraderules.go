package linux

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

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
//  1. From pods by the node to pods, which only happens to what somebody on the node redirected, such as from a pod to a
//     Service of another pod or of itself, by whatever means: the reply would go from pod to pod, past the node, and be from
//     an address that the sender has never heard of.
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
