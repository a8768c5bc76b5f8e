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

// tunnelNATs is the backend of the table that translates the addresses of tunnel packets.
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
		return fmt.Errorf("%s: there is one table, %s", name, tunnelTableName)
	}
	if v.Link == "" || len(v.Link) >= unix.IFNAMSIZ {
		return fmt.Errorf("link %q is no name for a link", v.Link)
	}
	if v.Port == 0 {
		return errors.New("the UDP port is missing")
	}
	for _, a := range slices.Concat([]netip.Addr{v.Inner, v.Node}, v.Peers) {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.Is4() != v.Inner.Is4() {
			return fmt.Errorf("address %s: all addresses are of one family and without a zone", a)
		}
	}
	if v.Inner == v.Node || slices.Contains(v.Peers, v.Inner) || slices.Contains(v.Peers, v.Node) {
		return errors.New("inner address, node and peers have to differ from each other")
	}
	if !slices.IsSortedFunc(v.Peers, netip.Addr.Compare) ||
		len(slices.Compact(slices.Clone(v.Peers))) != len(v.Peers) {
		return errors.New("the peers are not sorted, each once")
	}
	if v.Inner.Is6() && wire.AddressSum(v.Inner) != wire.AddressSum(v.Node) {
		return fmt.Errorf("inner address %s has another checksum than node %s", v.Inner, v.Node)
	}
	return nil
}

// Create makes the table, in one step with the removal of what is in its place.
func (tunnelNATs) Create(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(it *tunnelNATItem) error { return writeTunnelTable(it.Want) })
}

// Update changes the set of peers only, unless the rules differ: so that counters go on.
func (tunnelNATs) Update(ctx context.Context, batch []tunnelNATItem) {
	eachTunnelNAT(ctx, batch, func(it *tunnelNATItem) error {
		have := it.Have
		if have.Peers = it.Want.Peers; have.Equal(it.Want) {
			return fillPeers(it.Want)
		}
		return writeTunnelTable(it.Want)
	})
}

// Delete removes the table.
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

// RemoveTunnelNAT removes the table of nftables for tunnel packets from the node of the caller. A missing one is no error.
func RemoveTunnelNAT() error { return removeTable(tunnelTable()) }

// Dump finds the table.
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

// Read is Dump: there is one object.
func (b tunnelNATs) Read(ctx context.Context, view kvscheduler.View, _ []string) iter.Seq2[kvscheduler.Actual[wire.TunnelNAT, struct{}], error] {
	return b.Dump(ctx, view)
}

// knownTunnelNATs are the values that the table may have been made of.
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

// beforeTunnels is the priority of the guard in prerouting: behind the reassembly of fragments (-400), so that no fragment
// passes for lack of a UDP header, and before tunnel packets get the address of the dataplane's end (-300, tunnelChains). The
// kernel reassembles wherever a table translates addresses, as the one of the guard does.
var beforeTunnels = nftables.ChainPriorityRef(*nftables.ChainPriorityRaw - 10)

// guardChains are the chains of wire.TunnelGuard. Each rule counts what it drops. Locally made packets pass neither chain.
//
// Prerouting:
//  1. Pods do not reach the tunnels of this node, whatever source address they send from.
//
// Forward, which packets pass behind all translations of their destination and before those of their source:
//  1. Pods reach no tunnel elsewhere, by whatever address. What goes back into the dataplane may pass, for example to a pod of a
//     Service: pods' VRFs have no tunnel ends.
//  2. Third-party packets that this node forwards to a node, such as pods of another CNI. Nodes may route for each other.
//  3. Packets that came to this node as something else and were redirected to a node, as by a NodePort of a Service: the source
//     may be that of a pod's node already.
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

// notFromTunnels leaves out what the dataplane sends by its link for tunnels.
func notFromTunnels(g wire.TunnelGuard) []expr.Any {
	if g.Link == "" {
		return nil
	}
	return link(expr.MetaKeyIIFNAME, expr.CmpOpNeq, g.Link)
}

func drop() []expr.Any { return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}} }

// The table of nftables for tunnel packets.
const (
	tunnelTableName = "weft-tunnels"
	peersName       = "peers"
)

// The kernel's numbers for a change of IPv4 addresses (linux/netfilter/nf_tables.h).
const (
	checksum4    = 10 // where the checksum stands in the header of IPv4
	pseudoHeader = 1  // NFT_PAYLOAD_L4CSUM_PSEUDOHDR: the checksum of UDP changes too, if there is one
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

// tunnelChains are the chains of the table. Both come before connection tracking, which tunnel packets are kept out of: the
// translation has no state, and neither a restart of the agent nor a full table of connections interrupts a tunnel.
//
// Prerouting, where the destination of received packets changes:
//  1. tunnel packets of the dataplane are not tracked,
//  2. nothing else leaves the dataplane by that link,
//  3. packets to the dataplane's end are dropped unless they are for the node's address,
//  4. tunnel packets of peers to the node's address go to the dataplane.
//
// Postrouting, where the source of sent packets changes, after the kernel has chosen their route:
//  1. tunnel packets of the dataplane to peers come from the node's address.
//
// An IPv6 header has no checksum, and nftables changes the one of UDP only together with one of the header: that is why the
// inner address has the same sum as the node's.
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

// isAddress compares the address that stands there; the packet is of its family.
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

// setAddress puts an address in the place of the one that stands there.
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

// writeTunnelTable makes the table in place of the one that may be there, in one step.
func writeTunnelTable(v wire.TunnelNAT) error {
	c, err := tables()
	if err != nil {
		return err
	}
	table := tunnelTable()
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	c.AddTable(table)
	set := peersSet(v.Inner.Is4())
	if err := errors.Join(c.AddSet(set, nil), addPeers(c, set, v.Peers)); err != nil {
		return fmt.Errorf("make set %s of nftables: %w", peersName, err)
	}
	for _, chain := range tunnelChains(v) {
		c.AddChain(chain.Chain)
		for _, rule := range chain.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain.Chain, Exprs: rule})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table inet %s of nftables: %w", tunnelTableName, err)
	}
	return nil
}

// fillPeers changes nothing but the peers.
func fillPeers(v wire.TunnelNAT) error {
	c, err := tables()
	if err != nil {
		return err
	}
	set := peersSet(v.Inner.Is4())
	c.FlushSet(set)
	if err := addPeers(c, set, v.Peers); err != nil {
		return fmt.Errorf("fill set %s of nftables: %w", peersName, err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("fill set %s of table inet %s of nftables: %w", peersName, tunnelTableName, err)
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

// readTunnelTable gives the table as a value: its peers, and the rest only if the rules are those of a known value.
func readTunnelTable(known []wire.TunnelNAT) (have wire.TunnelNAT, found bool, err error) {
	c, err := tables()
	if err != nil {
		return have, false, err
	}
	table, err := c.ListTableOfFamily(tunnelTableName, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) || err == nil && table == nil {
		return have, false, nil
	}
	if err != nil {
		return have, false, fmt.Errorf("read table inet %s of nftables: %w", tunnelTableName, err)
	}
	peers, err := readPeers(c)
	if err != nil {
		return have, false, err
	}
	for _, v := range known {
		same := true
		for _, chain := range tunnelChains(v) {
			is, err := chain.isThere(c)
			if err != nil {
				return have, false, err
			}
			same = same && is
		}
		if same {
			have = v
		}
	}
	have.Peers = peers
	return have, true, nil
}

// readPeers are the sorted peers; none if the set is missing.
func readPeers(c *nftables.Conn) (peers []netip.Addr, err error) {
	set, err := c.GetSetByName(tunnelTable(), peersName)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read set %s of nftables: %w", peersName, err)
	}
	elements, err := c.GetSetElements(set)
	if err != nil {
		return nil, fmt.Errorf("read elements of set %s of nftables: %w", peersName, err)
	}
	for _, e := range elements {
		if a, is := netip.AddrFromSlice(e.Key); is {
			peers = append(peers, a)
		}
	}
	slices.SortFunc(peers, netip.Addr.Compare)
	return peers, nil
}
