package linux

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

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
//  3. nobody reaches the dataplane's end but by the node's address,
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
