package linux

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// tunnelNATs is the backend of the table that translates addresses of tunnel packets.
type tunnelNATs struct{}

type tunnelNATItem = kvscheduler.Item[wire.TunnelNAT, struct{}]

func tunnelNATDescriptor() kvscheduler.Descriptor[wire.TunnelNAT, struct{}] {
	return kvscheduler.Descriptor[wire.TunnelNAT, struct{}]{
		Name: wire.KindTunnelNAT, Lane: Lane,
		Equal:    wire.TunnelNAT.Equal,
		Validate: validateTunnelNAT,
		Backend:  tunnelNATs{},
	}
}

func validateTunnelNAT(name string, v wire.TunnelNAT) error {
	if wire.Key(wire.KindTunnelNAT, name) != wire.TunnelNATKey() {
		return fmt.Errorf("name %s is not that of the only table, %s", name, tunnelTableName)
	}
	if err := validateLink(v.Link); err != nil {
		return err
	}
	if v.Port == 0 {
		return errors.New("UDP port is missing")
	}
	for _, a := range slices.Concat([]netip.Addr{v.Inner, v.Node}, v.Peers) {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.Is4() != v.Inner.Is4() {
			return fmt.Errorf("address %s is invalid, has a zone or another family than inner address %s", a, v.Inner)
		}
	}
	if v.Inner == v.Node || slices.Contains(v.Peers, v.Inner) || slices.Contains(v.Peers, v.Node) {
		return fmt.Errorf("inner address %s, node %s and peers %v must differ", v.Inner, v.Node, v.Peers)
	}
	if !slices.IsSortedFunc(v.Peers, netip.Addr.Compare) ||
		len(slices.Compact(slices.Clone(v.Peers))) != len(v.Peers) {
		return fmt.Errorf("peers %v are not sorted or have duplicates", v.Peers)
	}
	if v.Inner.Is6() && wire.AddressSum(v.Inner) != wire.AddressSum(v.Node) {
		return fmt.Errorf("inner address %s has another checksum than node %s", v.Inner, v.Node)
	}
	return nil
}

func (tunnelNATs) Create(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(it *tunnelNATItem) error { return writeTunnelTable(it.Want) })
}

// Update keeps the rules, and so their counters, if only the peers change.
func (tunnelNATs) Update(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(it *tunnelNATItem) error {
		have := it.Have
		if have.Peers = it.Want.Peers; have.Equal(it.Want) {
			return fillPeers(it.Want)
		}
		return writeTunnelTable(it.Want)
	})
}

func (tunnelNATs) Delete(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(*tunnelNATItem) error { return RemoveTunnelNAT() })
}

func eachTunnelNAT(ctx context.Context, batch []tunnelNATItem, change func(*tunnelNATItem) error) {
	for i := range batch {
		it := &batch[i]
		if it.Err = refused(ctx.Err()); it.Err == nil {
			it.Err = refusedTable(change(it))
		}
	}
}

// RemoveTunnelNAT removes the nftables table for tunnel packets from the caller's namespace. A missing table is no error.
func RemoveTunnelNAT() error { return removeTable(tunnelTable()) }

func (tunnelNATs) Dump(_ context.Context, view kvscheduler.View) iter.Seq2[kvscheduler.Actual[wire.TunnelNAT, struct{}], error] {
	return func(yield func(kvscheduler.Actual[wire.TunnelNAT, struct{}], error) bool) {
		ref, err := kvscheduler.ParseRef(wire.TunnelNATKey())
		if err != nil {
			yield(kvscheduler.Actual[wire.TunnelNAT, struct{}]{}, err)
			return
		}
		have, found, err := readTunnelTable(knownTunnelNATs(view, ref))
		if err != nil || found {
			yield(kvscheduler.Actual[wire.TunnelNAT, struct{}]{Name: ref.Name, V: have}, err)
		}
	}
}

func (b tunnelNATs) Read(ctx context.Context, view kvscheduler.View, _ []string) iter.Seq2[kvscheduler.Actual[wire.TunnelNAT, struct{}], error] {
	return b.Dump(ctx, view)
}

// knownTunnelNATs returns the values that the table may have.
func knownTunnelNATs(view kvscheduler.View, ref kvscheduler.Ref) (values []wire.TunnelNAT) {
	applied, _, _ := view.Applied(ref)
	desired, _ := view.Desired(ref)
	for _, v := range []any{applied, desired} {
		if n, is := v.(wire.TunnelNAT); is {
			values = append(values, n)
		}
	}
	return values
}

// beforeTunnels is the priority of the guard in prerouting: after the reassembly of fragments (-400), since later fragments have no UDP
// header, and before tunnel packets get the address of the dataplane's end (-300, tunnelChains). The kernel reassembles if any table
// translates addresses, and the guard's table does.
var beforeTunnels = nftables.ChainPriorityRef(*nftables.ChainPriorityRaw - 10)

// guardChains returns the chains of wire.TunnelGuard. Each rule counts the packets that it drops. Packets of local processes pass neither
// chain.
//
// Prerouting:
//  1. Packets from pods to the tunnels of this node, with any source address.
//
// Forward, which packets pass after the translation of their destination and before that of their source:
//  1. Packets from pods to any other tunnel, with any destination address. Packets back into the dataplane may pass, for example to a
//     pod of a Service: pods' VRFs have no tunnel ends.
//  2. Packets to a node that do not come from a node, such as those of pods of another CNI plugin. Nodes may route for each other.
//  3. Packets that this node redirected to a node, for example from a NodePort of a Service: their source may be the address of a pod's
//     node already.
func guardChains(table *nftables.Table, v wire.Masquerade) []tableChain {
	prerouting := &nftables.Chain{
		Name: "guard-prerouting", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: beforeTunnels,
	}
	forward := &nftables.Chain{
		Name: "guard-forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter,
	}
	if v.Guard.Port == 0 {
		return []tableChain{{prerouting, nil}, {forward, nil}}
	}
	fromPods, toTunnel := link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link), udpTo(v.Guard.Port)
	rules := [][]expr.Any{slices.Concat(fromPods, link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, v.Link), toTunnel, drop())}
	for _, is4 := range []bool{true, false} {
		toNode := slices.Concat(notFromTunnels(v.Guard), family46(is4), toTunnel, inSet("nodes", destination(is4), is4, false))
		rules = append(rules,
			slices.Concat(toNode, inSet("nodes", source(is4), is4, true), drop()),
			slices.Concat(toNode, redirected(), drop()))
	}
	return []tableChain{
		{prerouting, [][]expr.Any{slices.Concat(fromPods, toTunnel, isLocal(&expr.Fib{FlagDADDR: true}), drop())}},
		{forward, rules},
	}
}

// notFromTunnels excludes packets from the dataplane's tunnel link.
func notFromTunnels(g wire.TunnelGuard) []expr.Any {
	if g.Link == "" {
		return nil
	}
	return link(expr.MetaKeyIIFNAME, expr.CmpOpNeq, g.Link)
}

func drop() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }

// The nftables table for tunnel packets.
const (
	tunnelTableName = "weft-tunnels"
	peersName       = "peers"
)

// Parameters of a change of IPv4 addresses (linux/netfilter/nf_tables.h).
const (
	checksum4    = 10 // offset of the checksum in the IPv4 header
	pseudoHeader = 1  // NFT_PAYLOAD_L4CSUM_PSEUDOHDR: also update the UDP checksum, if there is one
)

func tunnelTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tunnelTableName}
}

func peersSet(is4 bool) *nftables.Set {
	kind := nftables.TypeIP6Addr
	if is4 {
		kind = nftables.TypeIPAddr
	}
	return &nftables.Set{Table: tunnelTable(), Name: peersName, KeyType: kind}
}

// tableChain is a chain of a table with its rules.
type tableChain struct {
	*nftables.Chain
	rules [][]expr.Any
}

// tunnelChains returns the chains of the table. Both run before connection tracking and disable it for tunnel packets: the translation
// has no state, and neither a restart of the agent nor a full connection table interrupts a tunnel.
//
// Prerouting, which translates destinations:
//  1. do not track tunnel packets of the dataplane,
//  2. drop all other packets from that link,
//  3. drop packets to the inner address,
//  4. send tunnel packets of peers to the node's address to the dataplane.
//
// Postrouting, which translates sources after the route lookup:
//  1. send tunnel packets of the dataplane to peers from the node's address.
//
// An IPv6 header has no checksum, and nftables updates the UDP checksum only together with that of the header: therefore the inner
// address has the same sum as the node's.
func tunnelChains(v wire.TunnelNAT) []tableChain {
	is4 := v.Inner.Is4()
	source, destination := uint32(source6), uint32(destination6)
	if is4 {
		source, destination = source4, destination4
	}
	fromLink := link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link)
	to := slices.Concat(udpTo(v.Port), []expr.Any{addressAt(destination, is4), &expr.Lookup{SourceRegister: register1, SetName: peersName}})
	outward := slices.Concat(family46(is4), isAddress(source, v.Inner), to)
	inward := slices.Concat(family46(is4), isAddress(destination, v.Node), udpTo(v.Port),
		[]expr.Any{addressAt(source, is4), &expr.Lookup{SourceRegister: register1, SetName: peersName}})
	return []tableChain{
		{chainAt("prerouting", nftables.ChainHookPrerouting), [][]expr.Any{
			slices.Concat(fromLink, outward, []expr.Any{&expr.Counter{}, &expr.Notrack{}, &expr.Verdict{Kind: expr.VerdictAccept}}),
			slices.Concat(fromLink, []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}),
			slices.Concat(family46(is4), isAddress(destination, v.Inner), []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}),
			slices.Concat(inward, []expr.Any{&expr.Counter{}, &expr.Notrack{}}, setAddress(destination, v.Inner)),
		}},
		{chainAt("postrouting", nftables.ChainHookPostrouting), [][]expr.Any{
			slices.Concat(outward, []expr.Any{&expr.Counter{}}, setAddress(source, v.Node)),
		}},
	}
}

func chainAt(name string, hook *nftables.ChainHook) *nftables.Chain {
	return &nftables.Chain{
		Name: name, Table: tunnelTable(), Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRaw,
	}
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

// setAddress replaces the address at an offset of the IP header.
func setAddress(at uint32, a netip.Addr) []expr.Any {
	raw := a.AsSlice()
	write := &expr.Payload{
		OperationType: expr.PayloadWrite, SourceRegister: register1, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: uint32(len(raw)),
	}
	if a.Is4() {
		write.CsumType, write.CsumOffset, write.CsumFlags = expr.CsumTypeInet, checksum4, pseudoHeader
	}
	return []expr.Any{&expr.Immediate{Register: register1, Data: raw}, write}
}

// writeTunnelTable replaces the table in one transaction.
func writeTunnelTable(v wire.TunnelNAT) error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	table := tunnelTable()
	c.AddTable(table) // a missing table cannot be deleted
	c.DelTable(table)
	c.AddTable(table)
	set := peersSet(v.Inner.Is4())
	if err := errors.Join(c.AddSet(set, nil), addPeers(c, set, v.Peers)); err != nil {
		return fmt.Errorf("create nftables set %s: %w", peersName, err)
	}
	for _, chain := range tunnelChains(v) {
		c.AddChain(chain.Chain)
		for _, rule := range chain.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain.Chain, Exprs: rule})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", tunnelTableName, err)
	}
	return nil
}

// fillPeers replaces the peers and keeps the rules.
func fillPeers(v wire.TunnelNAT) error {
	c, err := nftConn()
	if err != nil {
		return err
	}
	set := peersSet(v.Inner.Is4())
	c.FlushSet(set)
	if err := addPeers(c, set, v.Peers); err != nil {
		return fmt.Errorf("fill nftables set %s: %w", peersName, err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("fill set %s of nftables table %s: %w", peersName, tunnelTableName, err)
	}
	return nil
}

func addPeers(c *nftables.Conn, set *nftables.Set, peers []netip.Addr) error {
	var elements []nftables.SetElement
	for _, a := range peers {
		elements = append(elements, nftables.SetElement{Key: a.AsSlice()})
	}
	for part := range slices.Chunk(elements, perMessage) {
		if err := c.SetAddElements(set, part); err != nil {
			return err
		}
	}
	return nil
}

// readTunnelTable reads the table as a value. It takes the fields other than peers from the known value with the same rules.
func readTunnelTable(known []wire.TunnelNAT) (have wire.TunnelNAT, found bool, err error) {
	c, err := nftConn()
	if err != nil {
		return have, false, err
	}
	table, err := c.ListTableOfFamily(tunnelTableName, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) || err == nil && table == nil {
		return have, false, nil
	}
	if err != nil {
		return have, false, fmt.Errorf("read nftables table %s: %w", tunnelTableName, err)
	}
	peers, err := readPeers(c)
	if err != nil {
		return have, false, err
	}
	for _, v := range known {
		same := true
		for _, chain := range tunnelChains(v) {
			exists, err := chain.exists(c)
			if err != nil {
				return have, false, err
			}
			same = same && exists
		}
		if same {
			have = v
		}
	}
	have.Peers = peers
	return have, true, nil
}

// readPeers returns the sorted peers; none if the set is missing.
func readPeers(c *nftables.Conn) (peers []netip.Addr, err error) {
	set, err := c.GetSetByName(tunnelTable(), peersName)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read nftables set %s: %w", peersName, err)
	}
	elements, err := c.GetSetElements(set)
	if err != nil {
		return nil, fmt.Errorf("read elements of nftables set %s: %w", peersName, err)
	}
	for _, e := range elements {
		if a, is := netip.AddrFromSlice(e.Key); is {
			peers = append(peers, a)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	return peers, nil
}
