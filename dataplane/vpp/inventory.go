package vpp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/wire"
)

// Inventory reads the whole dataplane for operators: also the objects that Weft did not create, learned entries, and
// routes of all sources. It only reads. Weft's objects have the names of the scheduler; a foreign one has the
// dataplane's name.
type Inventory struct{ c *Client }

// InterfaceEntry is an interface of the dataplane.
type InterfaceEntry struct {
	Index        Index
	Name         string // the dataplane's name, such as tap0
	Object       string // name of the vpp.interface; "" for a foreign one
	Type         string
	MAC          netaddr.MAC
	MTU          int
	Up, LinkUp   bool
	VRFs         []string // of Weft's interfaces, if not the default ones
	BridgeDomain string
}

// Interfaces lists the interfaces by index.
func (v Inventory) Interfaces(ctx context.Context) ([]InterfaceEntry, error) {
	p, there, err := both(ctx, v.c.ports, bridges(v).read)
	if err != nil {
		return nil, err
	}
	members, err := memberships(v).read(ctx, nil)
	if err != nil {
		return nil, err
	}
	vrfs := map[Index][]string{}
	for _, m := range members {
		vrfs[m.Meta] = append(vrfs[m.Meta], m.V.VRF)
	}
	domains := map[Index]string{}
	for id, d := range there.byID {
		for _, m := range d.SwIfDetails {
			domains[Index(m.SwIfIndex)] = there.nameOf(id)
		}
	}
	var all []InterfaceEntry
	for _, d := range p.list {
		i := Index(d.SwIfIndex)
		value := p.value(d)
		slices.Sort(vrfs[i])
		all = append(all, InterfaceEntry{
			Index:  i,
			Name:   d.InterfaceName,
			Object: p.byIndex[i],
			Type:   cmp.Or(string(value.Type), d.InterfaceDevType),
			MAC:    value.MAC,
			MTU:    value.MTU,
			Up:     value.Up, LinkUp: isLinkUp(d), VRFs: vrfs[i], BridgeDomain: domains[i],
		})
	}
	slices.SortFunc(all, func(a, b InterfaceEntry) int { return cmp.Compare(a.Index, b.Index) })
	return all, nil
}

func isLinkUp(d *interfaces.SwInterfaceDetails) bool {
	return d.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0
}

// MemifEntry is a memif. RingSize and BufferSize are 0 if they are unknown: VPP does not report the sizes of a client
// that is connected.
type MemifEntry struct {
	Index      Index
	Name       string
	Object     string
	ID         uint32
	Role       string // server or client
	Mode       string
	Socket     string // path
	RingSize   uint32
	BufferSize uint16
	Connected  bool
}

// Memifs lists the memifs by index.
func (v Inventory) Memifs(ctx context.Context) ([]MemifEntry, error) {
	p, err := v.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	var all []MemifEntry
	for _, d := range p.list {
		i := Index(d.SwIfIndex)
		m, isMemif := p.memifs.byIndex[i]
		if !isMemif {
			continue
		}
		role := "server"
		if m.Role != 0 {
			role = "client"
		}
		ring := m.RingSize
		if m.BufferSize == 0 {
			ring = 0 // of a server VPP reports 1 slot, which stands for unknown
		}
		all = append(all, MemifEntry{
			Index:      i,
			Name:       d.InterfaceName,
			Object:     p.byIndex[i],
			ID:         m.ID,
			Role:       role,
			Mode:       string(p.memifs.value(m).Mode),
			Socket:     p.memifs.socketPath(i),
			RingSize:   ring,
			BufferSize: m.BufferSize,
			Connected:  m.Flags&interface_types.IF_STATUS_API_FLAG_LINK_UP != 0,
		})
	}
	slices.SortFunc(all, func(a, b MemifEntry) int { return cmp.Compare(a.Index, b.Index) })
	return all, nil
}

// RouteEntry is a route of any source.
type RouteEntry struct {
	VRF    string // name of the vpp.vrf; of a foreign table #ID/FAMILY, or the table's name
	Prefix netip.Prefix
	Paths  []PathEntry
}

// PathEntry is a path of a route.
type PathEntry struct {
	Interface string // name of the vpp.interface, or of a foreign interface; "" if Action is set and names none
	NextHop   netip.Addr
	Action    string // "" forwards; else local, drop, unreachable, prohibit, or the dataplane's name
	Weight    uint8
}

// FIB lists the routes of the tables that keep selects by the name of the VRF, sorted by VRF and prefix.
func (v Inventory) FIB(ctx context.Context, keep func(vrf string) bool) ([]RouteEntry, error) {
	p, owners, err := both(ctx, v.c.ports, vrfs{c: v.c}.owners)
	if err != nil {
		return nil, err
	}
	names := p.anyNames()
	var requests []*request
	var vrfs []string
	for table, owner := range owners {
		vrf := vrfName(table, owner)
		if keep(vrf) {
			requests = append(requests,
				askAll(&ip.IPRouteDump{Table: ip.IPTable{TableID: table.ID, IsIP6: table.Family == netaddr.IP6}},
					&ip.IPRouteDetails{}))
			vrfs = append(vrfs, vrf)
		}
	}
	if err := v.c.exchangeAll(ctx, requests); err != nil {
		return nil, err
	}
	var all []RouteEntry
	for n, r := range requests {
		for _, d := range listOf[*ip.IPRouteDetails](r) {
			e := RouteEntry{VRF: vrfs[n], Prefix: prefix(d.Route.Prefix).Masked()}
			for _, f := range withoutBackupDrop(d.Route.Paths) {
				e.Paths = append(e.Paths, pathEntry(p.byIndex.path(f), f, names))
			}
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b RouteEntry) int {
		return cmp.Or(cmp.Compare(a.VRF, b.VRF), a.Prefix.Addr().Compare(b.Prefix.Addr()),
			cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	return all, nil
}

// vrfName names a table as the vpp.vrf of Weft, or as the dataplane does.
func vrfName(t Table, owner string) string {
	label, ours := strings.CutPrefix(owner, vrfPrefix)
	switch {
	case ours:
		return wire.VRFName(label, t.Family)
	case owner != "":
		return owner
	}
	return fmt.Sprintf("#%d/%s", t.ID, t.Family)
}

var actions = map[fib_types.FibPathType]string{
	fib_types.FIB_API_PATH_TYPE_NORMAL:        "",
	fib_types.FIB_API_PATH_TYPE_LOCAL:         "local",
	fib_types.FIB_API_PATH_TYPE_DROP:          "drop",
	fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH:  "unreachable",
	fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT: "prohibit",
}

func pathEntry(path wire.Path, f fib_types.FibPath, names map[Index]string) PathEntry {
	action, known := actions[f.Type]
	if !known {
		action = f.Type.String()
	}
	return PathEntry{Interface: names[Index(f.SwIfIndex)], NextHop: path.NextHop, Action: action, Weight: f.Weight}
}

// BridgeEntry is a bridge domain with its members and its MAC table.
type BridgeEntry struct {
	ID                           uint32
	Name                         string // name of the vpp.bridge-domain; of a foreign one #ID
	Learn, Flood, Forward, UUFwd bool
	Age                          time.Duration // of learned entries; 0: they do not age
	Members                      []BridgeMemberEntry
	MACs                         []MACEntry
}

// BridgeMemberEntry is an interface in a bridge domain.
type BridgeMemberEntry struct {
	Interface         string
	BVI               bool
	SplitHorizonGroup uint8
}

// MACEntry is an entry of the MAC table of a bridge domain.
type MACEntry struct {
	MAC       netaddr.MAC
	Interface string
	Static    bool // configured, or of the BVI; else learned
}

// Bridges lists the bridge domains by name.
func (v Inventory) Bridges(ctx context.Context) ([]BridgeEntry, error) {
	p, there, err := both(ctx, v.c.ports, bridges(v).read)
	if err != nil {
		return nil, err
	}
	names := p.anyNames()
	var all []BridgeEntry
	var requests []*request
	for id, d := range there.byID {
		requests = append(requests, askAll(&l2.L2FibTableDump{BdID: uint32(id)}, &l2.L2FibTableDetails{}))
		all = append(all, BridgeEntry{
			ID: d.BdID, Name: there.nameOf(id), Learn: d.Learn, Flood: d.Flood, Forward: d.Forward, UUFwd: d.UuFlood,
			Age: time.Duration(d.MacAge) * time.Minute, Members: membersOf(d, names),
		})
	}
	if err := v.c.exchangeAll(ctx, requests); err != nil {
		return nil, err
	}
	for n, r := range requests {
		for _, d := range listOf[*l2.L2FibTableDetails](r) {
			all[n].MACs = append(all[n].MACs, MACEntry{
				MAC:       netaddr.MAC(d.Mac),
				Interface: names[Index(d.SwIfIndex)],
				Static:    d.StaticMac || d.BviMac,
			})
		}
		slices.SortFunc(all[n].MACs, func(a, b MACEntry) int { return strings.Compare(a.MAC.String(), b.MAC.String()) })
	}
	slices.SortFunc(all, func(a, b BridgeEntry) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

func membersOf(d *l2.BridgeDomainDetails, names map[Index]string) []BridgeMemberEntry {
	var members []BridgeMemberEntry
	for _, m := range d.SwIfDetails {
		members = append(members, BridgeMemberEntry{
			Interface: names[Index(m.SwIfIndex)], BVI: m.SwIfIndex == d.BviSwIfIndex, SplitHorizonGroup: m.Shg,
		})
	}
	slices.SortFunc(members, func(a, b BridgeMemberEntry) int { return cmp.Compare(a.Interface, b.Interface) })
	return members
}

// NeighbourEntry is a neighbour of the dataplane.
type NeighbourEntry struct {
	Address   netip.Addr
	MAC       netaddr.MAC
	Interface string
	Static    bool
	Age       time.Duration // since the last confirmation
}

// Neighbours lists the neighbours by interface and address.
func (v Inventory) Neighbours(ctx context.Context) ([]NeighbourEntry, error) {
	p, err := v.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	var requests []*request
	for _, family := range families {
		requests = append(requests,
			askAll(&ip_neighbor.IPNeighborDump{SwIfIndex: noIndex.api(), Af: addressFamily(family)},
				&ip_neighbor.IPNeighborDetails{}))
	}
	if err := v.c.exchangeAll(ctx, requests); err != nil {
		return nil, err
	}
	names := p.anyNames()
	var all []NeighbourEntry
	for _, r := range requests {
		for _, d := range listOf[*ip_neighbor.IPNeighborDetails](r) {
			n := d.Neighbor
			all = append(all, NeighbourEntry{
				Address: address(n.IPAddress), MAC: netaddr.MAC(n.MacAddress), Interface: names[Index(n.SwIfIndex)],
				Static: n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0,
				Age:    time.Duration(d.Age * float64(time.Second)),
			})
		}
	}
	slices.SortFunc(all, func(a, b NeighbourEntry) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Address.Compare(b.Address))
	})
	return all, nil
}

// runtimeCommand is the dataplane's command for the load of its threads.
const runtimeCommand = "show runtime"

// Runtime returns the dataplane's own report of the load of its threads, as text.
func (v Inventory) Runtime(ctx context.Context) (string, error) {
	reply := &vlib.CliInbandReply{}
	r := ask("cli_inband "+runtimeCommand, &vlib.CliInband{Cmd: runtimeCommand}, reply)
	r.read = true
	if err := v.c.exchangeAll(ctx, []*request{r}); err != nil {
		return "", err
	}
	return reply.Reply, nil
}
