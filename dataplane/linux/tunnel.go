package linux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// The nftables table for tunnel packets.
const (
	tunnelTableName = "weft-tunnels"
	peersName       = "peers"
	vnisName        = "vnis"
)

var tunnelTable = onlyTable[wire.TunnelNAT]{
	name: tunnelTableName,
	table: func(v wire.TunnelNAT) nftTable {
		peers := nftSet{Set: peersSet(v.Inner.Is4())}
		for _, a := range v.Peers {
			peers.elements = append(peers.elements, nftables.SetElement{Key: a.AsSlice()})
		}
		vnis := nftSet{Set: vnisSet()}
		for _, vni := range v.VNIs {
			vnis.elements = append(vnis.elements, nftables.SetElement{Key: vniWord(vni)})
		}
		return nftTable{inetTable(tunnelTableName), []nftSet{peers, vnis}, tunnelChains(v)}
	},
	withSets: func(v, sets wire.TunnelNAT) wire.TunnelNAT {
		v.Peers = sets.Peers
		v.VNIs = sets.VNIs
		return v
	},
	readSets: readTunnelSets,
}

func tunnelNATDescriptor() kvscheduler.Descriptor[wire.TunnelNAT, struct{}] {
	return kvscheduler.Descriptor[wire.TunnelNAT, struct{}]{
		Name: wire.KindTunnelNAT, Lane: Lane,
		Equal:    wire.TunnelNAT.Equal,
		Validate: validateTunnelNAT,
		Backend:  tunnelTable.backend(wire.TunnelNATKey()),
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
	if err := validateVNIs(v.VNIs); err != nil {
		return err
	}
	if v.Inner.Is6() && wire.AddressSum(v.Inner) != wire.AddressSum(v.Node) {
		return fmt.Errorf("inner address %s has another checksum than node %s", v.Inner, v.Node)
	}
	return nil
}

func validateVNIs(vnis []uint32) error {
	if !slices.IsSorted(vnis) || len(slices.Compact(slices.Clone(vnis))) != len(vnis) {
		return fmt.Errorf("VNIs %d are not sorted or have duplicates", vnis)
	}
	for _, vni := range vnis {
		if vni == 0 || vni > wire.MaxVNI {
			return fmt.Errorf("VNI %d is not between 1 and %d", vni, wire.MaxVNI)
		}
	}
	return nil
}

// RemoveTunnelNAT removes the nftables table for tunnel packets from the caller's namespace. A missing table is no
// error.
func RemoveTunnelNAT() error { return removeTable(inetTable(tunnelTableName)) }

// beforeTunnels is the priority of the guard in prerouting: after the reassembly of fragments (-400), since later
// fragments have no UDP header, and before tunnel packets get the address of the dataplane's end (-300, tunnelChains).
// The kernel reassembles if any table translates addresses, and the guard's table does.
var beforeTunnels = nftables.ChainPriorityRef(*nftables.ChainPriorityRaw - 10)

// guardChains returns the chains of wire.TunnelGuard. Each rule counts the packets that it drops. Packets of local
// processes pass neither chain.
//
// Prerouting:
//  1. Packets from pods to the tunnels of this node, with any source address.
//
// Forward, which packets pass after the translation of their destination and before that of their source:
//  1. Packets from pods to any other tunnel, with any destination address. Packets back into the dataplane may pass,
//     for example to a
//     pod of a Service: pods' VRFs have no tunnel ends.
//  2. Packets to a node that do not come from a node, such as those of pods of another CNI plugin. Nodes may route for
//     each other.
//  3. Packets that this node redirected to a node, for example from a NodePort of a Service: their source may be the
//     address of a pod's
//     node already.
func guardChains(table *nftables.Table, v wire.Masquerade) []nftChain {
	prerouting := &nftables.Chain{
		Name:     "guard-prerouting",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: beforeTunnels,
	}
	forward := &nftables.Chain{
		Name: "guard-forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter,
	}
	if v.Guard.Port == 0 {
		return []nftChain{{prerouting, nil}, {forward, nil}}
	}
	fromPods := link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link)
	toTunnel := udpTo(v.Guard.Port)
	rules := [][]expr.Any{slices.Concat(fromPods, link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, v.Link), toTunnel, drop())}
	for _, is4 := range []bool{true, false} {
		toNode := slices.Concat(notFromTunnels(v.Guard), family46(is4), toTunnel,
			inSet("nodes", destination(is4), is4, false))
		rules = append(rules,
			slices.Concat(toNode, inSet("nodes", source(is4), is4, true), drop()),
			slices.Concat(toNode, redirected(), drop()))
	}
	return []nftChain{
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

// Parameters of a change of IPv4 addresses (linux/netfilter/nf_tables.h).
const (
	checksum4    = 10 // offset of the checksum in the IPv4 header
	pseudoHeader = 1  // NFT_PAYLOAD_L4CSUM_PSEUDOHDR: also update the UDP checksum, if there is one
)

func peersSet(is4 bool) *nftables.Set {
	kind := nftables.TypeIP6Addr
	if is4 {
		kind = nftables.TypeIPAddr
	}
	return &nftables.Set{Table: inetTable(tunnelTableName), Name: peersName, KeyType: kind}
}

// tunnelChains returns the chains of the table. Both run before connection tracking and disable it for tunnel packets:
// the translation has no state, and neither a restart of the agent nor a full connection table interrupts a tunnel.
//
// Prerouting, which translates destinations:
//  1. do not track tunnel packets of the dataplane,
//  2. drop all other packets from that link,
//  3. drop packets to the inner address,
//  4. send packets of peers to the node's address to the dataplane if their VNI is that of a tunnel. The kernel keeps
//     all others on this
//     port, for VXLAN devices of other programs.
//
// Postrouting, which translates sources after the route lookup:
//  1. send tunnel packets of the dataplane to peers from the node's address.
//
// An IPv6 header has no checksum, and nftables updates the UDP checksum only together with the checksum of the header:
// therefore the inner address has the same sum as the node's.
func tunnelChains(v wire.TunnelNAT) []nftChain {
	is4 := v.Inner.Is4()
	source := uint32(source6)
	destination := uint32(destination6)
	if is4 {
		source = source4
		destination = destination4
	}
	fromLink := link(expr.MetaKeyIIFNAME, expr.CmpOpEq, v.Link)
	to := slices.Concat(udpTo(v.Port), []expr.Any{
		addressAt(destination, is4), &expr.Lookup{SourceRegister: register1, SetName: peersName},
	})
	outward := slices.Concat(family46(is4), isAddress(source, v.Inner), to)
	inward := slices.Concat(family46(is4), isAddress(destination, v.Node), udpTo(v.Port),
		[]expr.Any{addressAt(source, is4), &expr.Lookup{SourceRegister: register1, SetName: peersName}}, hasVNI())
	return []nftChain{
		{chainAt("prerouting", nftables.ChainHookPrerouting), [][]expr.Any{
			slices.Concat(fromLink, outward, []expr.Any{
				&expr.Counter{}, &expr.Notrack{}, &expr.Verdict{Kind: expr.VerdictAccept},
			}),
			slices.Concat(fromLink, []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}),
			slices.Concat(family46(is4), isAddress(destination, v.Inner), []expr.Any{
				&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop},
			}),
			slices.Concat(inward, []expr.Any{&expr.Counter{}, &expr.Notrack{}}, setAddress(destination, v.Inner)),
		}},
		{chainAt("postrouting", nftables.ChainHookPostrouting), [][]expr.Any{
			slices.Concat(outward, []expr.Any{&expr.Counter{}}, setAddress(source, v.Node)),
		}},
	}
}

// The VXLAN header (RFC 7348, section 5) is behind the UDP header: flags, three reserved bytes, the VNI and a reserved
// byte.
const (
	vxlanHeader = 8 // its offset from the start of the UDP header
	vxlanFlags  = 8 // the VNI is valid, and there is no extension
)

// hasVNI matches VXLAN packets with a VNI of the set. Packets that are too short do not match.
func hasVNI() []expr.Any {
	return []expr.Any{
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: vxlanHeader, Len: 1, DestRegister: register1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register1, Data: []byte{vxlanFlags}},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: vxlanHeader + 4, Len: 4, DestRegister: register1},
		&expr.Bitwise{
			SourceRegister: register1,
			DestRegister:   register1,
			Len:            4,
			Mask:           vniWord(wire.MaxVNI),
			Xor:            make([]byte, 4),
		},
		&expr.Lookup{SourceRegister: register1, SetName: vnisName},
	}
}

// vniWord returns a VNI as the second word of a VXLAN header.
func vniWord(vni uint32) []byte { return binary.BigEndian.AppendUint32(nil, vni<<8) }

func vnisSet() *nftables.Set {
	return &nftables.Set{Table: inetTable(tunnelTableName), Name: vnisName, KeyType: nftables.TypeInteger}
}

func chainAt(name string, hook *nftables.ChainHook) *nftables.Chain {
	return &nftables.Chain{
		Name:     name,
		Table:    inetTable(tunnelTableName),
		Type:     nftables.ChainTypeFilter,
		Hooknum:  hook,
		Priority: nftables.ChainPriorityRaw,
	}
}

// setAddress replaces the address at an offset of the IP header.
func setAddress(at uint32, a netip.Addr) []expr.Any {
	raw := a.AsSlice()
	write := &expr.Payload{
		OperationType:  expr.PayloadWrite,
		SourceRegister: register1,
		Base:           expr.PayloadBaseNetworkHeader,
		Offset:         at,
		Len:            uint32(len(raw)),
	}
	if a.Is4() {
		write.CsumType = expr.CsumTypeInet
		write.CsumOffset = checksum4
		write.CsumFlags = pseudoHeader
	}
	return []expr.Any{&expr.Immediate{Register: register1, Data: raw}, write}
}

// readTunnelSets reads the sorted peers and VNIs; none if their set is missing.
func readTunnelSets(c *nftables.Conn) (v wire.TunnelNAT, complete bool, err error) {
	peers, err := readSet(c, &nftables.Set{Table: inetTable(tunnelTableName), Name: peersName})
	if err != nil {
		return v, true, err
	}
	vnis, err := readSet(c, &nftables.Set{Table: inetTable(tunnelTableName), Name: vnisName})
	if err != nil || peers == nil || vnis == nil {
		return v, false, err
	}
	for _, e := range peers.elements {
		if a, is := netip.AddrFromSlice(e.Key); is {
			v.Peers = append(v.Peers, a)
		}
	}
	for _, e := range vnis.elements {
		v.VNIs = append(v.VNIs, binary.BigEndian.Uint32(e.Key)>>8)
	}
	slices.SortFunc(v.Peers, netip.Addr.Compare)
	slices.Sort(v.VNIs)
	return v, true, nil
}
