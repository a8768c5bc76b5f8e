package forward

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/vswitch/frame"
)

// Tunnel makes an interface one end of a VXLAN tunnel (RFC 7348). What is sent to it leaves in an envelope by Table's routes,
// and is dropped if these have no way to Destination, as in VPP; what comes back from Destination with this VNI is received
// there. Only a bridge domain can do something with that: a tunnel outside of all drops it.
//
// Envelopes may be fragmented on their way, as DF is not set. Nothing asks for that: an IP packet inside that is longer
// than the interface's MTU is dropped and counted, and who routes into the tunnel by a BVI of that MTU is told.
type Tunnel struct {
	Source, Destination netip.AddrPort // of one family; packets to Source's port are taken
	VNI                 uint32         // 1 to frame.MaxVNI
	Table               uint32         // of the addresses' family
}

// tunnel is a Tunnel as workers see it.
type tunnel struct {
	Tunnel
	envelope frame.Envelope
	fib      int // slot of Table
}

// tunnelKey is what a received envelope tells of its tunnel.
type tunnelKey struct {
	local, remote netip.Addr
	vni           uint32
	table         uint32
	port          uint16 // of local
}

func (t *tunnel) key() tunnelKey {
	return tunnelKey{local: t.Source.Addr(), remote: t.Destination.Addr(), vni: t.VNI, table: t.Table, port: t.Source.Port()}
}

func (t *tunnel) tableKey() TableKey { return TableKey{FamilyOf(t.Source.Addr()), t.Table} }

// tunnels are those of a snapshot.
type tunnels struct {
	byKey  map[tunnelKey]uint32 // interface indexes
	ports  []uint16             // that envelopes come to
	routed map[uint16]int       // how many tunnels have each of ports
}

// setTunnel gives the interface its tunnel, in place of the one it had; both may be nil.
func (s *snapshot) setTunnel(i *iface, c *Tunnel) {
	old := i.tunnel
	if c == nil && old == nil || c != nil && old != nil && old.Tunnel == *c {
		return
	}
	next := tunnels{byKey: maps.Clone(s.tunnels.byKey), routed: maps.Clone(s.tunnels.routed)}
	if next.byKey == nil {
		next = tunnels{byKey: map[tunnelKey]uint32{}, routed: map[uint16]int{}}
	}
	if old != nil && next.byKey[old.key()] == i.index {
		delete(next.byKey, old.key())
		next.count(old, -1)
	}
	i.tunnel = nil
	if c != nil {
		i.tunnel = &tunnel{Tunnel: *c, envelope: frame.NewEnvelope(c.Source.Addr(), c.Destination, c.VNI)}
		i.tunnel.fib = s.slot(i.tunnel.tableKey())
		next.byKey[i.tunnel.key()] = i.index
		next.count(i.tunnel, 1)
	}
	next.ports = slices.Sorted(maps.Keys(next.routed))
	s.tunnels = next
}

// count keeps the ports of tunnels.
func (t *tunnels) count(of *tunnel, by int) {
	port := of.Source.Port()
	if t.routed[port] += by; t.routed[port] <= 0 {
		delete(t.routed, port)
	}
}

// tunnel finds the interface that an envelope belongs to, or nil.
func (s *snapshot) tunnel(k tunnelKey) *iface {
	index, ok := s.tunnels.byKey[k]
	if !ok {
		return nil
	}
	return s.iface(index)
}

// rebound is the tunnel with its table's slot of today.
func (t *tunnel) rebound(s *snapshot) *tunnel {
	if t == nil || t.fib == s.slot(t.tableKey()) {
		return t
	}
	next := *t
	next.fib = s.slot(t.tableKey())
	return &next
}
