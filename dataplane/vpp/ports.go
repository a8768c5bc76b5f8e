package vpp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Index is the dataplane's number of an interface (sw_if_index).
type Index uint32

const noIndex = ^Index(0)

func (i Index) api() interface_types.InterfaceIndex { return interface_types.InterfaceIndex(i) }

// ports are the interfaces of the dataplane.
type ports struct {
	list    []*interfaces.SwInterfaceDetails
	taps    map[Index]*tapv2.SwInterfaceTapV2Details
	links   map[Index]string // Linux links of interfaces of type af_packet
	memifs  memifs
	vxlans  map[Index]wire.VXLAN
	byIndex names
	byName  map[string]*interfaces.SwInterfaceDetails

	socketsDir string // directory of our memif sockets
}

// names are the names of our interfaces.
type names map[Index]string

func (c *connection) ports(ctx context.Context) (*ports, error) {
	all := askAll(&interfaces.SwInterfaceDump{SwIfIndex: noIndex.api()}, &interfaces.SwInterfaceDetails{})
	taps := askAll(&tapv2.SwInterfaceTapV2Dump{SwIfIndex: noIndex.api()}, &tapv2.SwInterfaceTapV2Details{})
	links := askAll(&af_packet.AfPacketDump{}, &af_packet.AfPacketDetails{})
	memifs := dumpMemifs()
	sockets := dumpSockets()
	vxlans := dumpVXLANs()
	if err := c.exchangeAll(ctx, []*request{all, taps, links, memifs, sockets, vxlans}); err != nil {
		return nil, err
	}
	p := &ports{
		list: listOf[*interfaces.SwInterfaceDetails](all),
		taps: mapOf(taps, func(d *tapv2.SwInterfaceTapV2Details) (Index, *tapv2.SwInterfaceTapV2Details) {
			return Index(d.SwIfIndex), d
		}),
		links: mapOf(links, func(d *af_packet.AfPacketDetails) (Index, string) {
			return Index(d.SwIfIndex), d.HostIfName
		}),
		memifs: newMemifs(memifs, sockets), vxlans: vxlansIn(vxlans),
		byIndex: names{}, byName: map[string]*interfaces.SwInterfaceDetails{}, socketsDir: c.options.Sockets,
	}
	for _, d := range p.list {
		name, _, ours := p.identity(d)
		if _, taken := p.byName[name]; taken {
			name = duplicate(name, Index(d.SwIfIndex))
		}
		if ours {
			p.byIndex[Index(d.SwIfIndex)] = name
			p.byName[name] = d
		}
	}
	return p, nil
}

func (p *ports) isLoopback(i Index) bool {
	return slices.ContainsFunc(p.list, func(d *interfaces.SwInterfaceDetails) bool {
		_, ok := instanceIn(d, loopbackPrefix)
		return ok && Index(d.SwIfIndex) == i
	})
}

// identity returns the name and the hash in the tag of an interface. An interface of an interrupted creation has no
// tag: ours are recognised by their number, link or socket.
func (p *ports) identity(d *interfaces.SwInterfaceDetails) (name string, hash uint64, ours bool) {
	if name, hash, ours = parseTag(d.Tag); ours || d.Tag != "" {
		return name, hash, ours
	}
	instance, ok := instanceIn(d, loopbackPrefix)
	if !ok {
		instance, ok = instanceIn(d, tunnelPrefix)
	}
	if ok && instance >= firstInstance || strings.HasPrefix(d.InterfaceName, hostLinkPrefix) ||
		isBelow(p.memifs.socketPath(Index(d.SwIfIndex)), p.socketsDir) {
		return "untagged-" + d.InterfaceName, 0, true
	}
	return "", 0, false
}

// unique are the names of the objects of a dump.
type unique map[string]bool

// add returns the name of the next object, which differs if an object with the same tag precedes.
func (u unique) add(name string, i Index) string {
	if u[name] {
		name = duplicate(name, i)
	}
	u[name] = true
	return name
}

// duplicate names a second interface with the same tag. It was made by Weft, but is not desired.
func duplicate(name string, i Index) string { return fmt.Sprintf("%s#%d", name, i) }

// of names an interface. The name of a foreign one is invalid for desired values.
func (n names) of(i Index) string {
	if name, ok := n[i]; ok {
		return name
	}
	return fmt.Sprintf("#%d", i)
}

// named returns our interfaces by name. With names of objects it returns only the interfaces of these objects.
func (p *ports) named(names []string) map[string]Index {
	chosen := map[string]Index{}
	for name, d := range p.byName {
		if len(names) == 0 || concerns(name, names) {
			chosen[name] = Index(d.SwIfIndex)
		}
	}
	return chosen
}

// anyNames names all interfaces: Weft's by their objects, foreign ones as the dataplane does.
func (p *ports) anyNames() map[Index]string {
	names := make(map[Index]string, len(p.list))
	for _, d := range p.list {
		i := Index(d.SwIfIndex)
		names[i] = cmp.Or(p.byIndex[i], d.InterfaceName)
	}
	return names
}

func (p *ports) takenInstances(prefix string) map[uint32]bool {
	taken := map[uint32]bool{}
	for _, d := range p.list {
		if n, ok := instanceIn(d, prefix); ok {
			taken[n] = true
		}
	}
	return taken
}

// concerns reports whether an object is named after the interface: its name, or its name with a slash and more.
func concerns(iface string, names []string) bool {
	for _, n := range names {
		if rest, ok := strings.CutPrefix(n, iface); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

func mac(d *interfaces.SwInterfaceDetails) netaddr.MAC { return netaddr.MAC(d.L2Address) }

// Port is an interface of ours to a pod, as the dataplane reports it.
type Port struct {
	Name      string         // of the vpp.interface
	Interface wire.Interface // without the key of the link's object
	Addresses []netip.Addr   // of its static neighbours, which are the addresses of its Linux end
	PeerMAC   netaddr.MAC    // of these neighbours; zero without neighbours
	Socket    string         // of a memif: the path of its socket; Interface.Memif has only id and mode
	Labels    []string       // of its VRFs and its bridge domain, each once
	Policers  []wire.Policer // applied to it
	hash      uint64
}

// MadeAs reports whether the interface was created from this value, which the dataplane may report differently.
func (p Port) MadeAs(v wire.Interface) bool { return p.hash == interfaceHash(v) }

// Queues finds the numbers of receive and transmit queues, which no dataplane reports. made reports whether the
// interface was created from v with these numbers.
func (p Port) Queues(v wire.Interface) (rx, tx int, made bool) {
	for n := range wire.MaxQueues * wire.MaxQueues {
		rx = 1 + n/wire.MaxQueues
		tx = 1 + n%wire.MaxQueues
		v.Tap.Queues = rx
		v.AFPacket.RxQueues = rx
		v.AFPacket.TxQueues = tx
		if (v.Type != wire.TypeTap || rx == tx) && p.MadeAs(v) {
			return rx, tx, true
		}
	}
	return 0, 0, false
}

// OwnPorts lists the taps, the interfaces of type af_packet and the memifs with our tags, sorted by name, to rebuild
// lost state. A namespace with a path that is too long for the API has another path here, which may be invalid; see
// MadeAs.
func (v Inventory) OwnPorts(ctx context.Context) ([]Port, error) {
	p, err := v.c.ports(ctx)
	if err != nil {
		return nil, err
	}
	found, err := neighbours(v).read(ctx, nil)
	if err != nil {
		return nil, err
	}
	labels, err := v.memberLabels(ctx)
	if err != nil {
		return nil, err
	}
	limits, err := policers(v).dump(ctx)
	if err != nil {
		return nil, err
	}
	var own []Port
	for _, d := range p.list {
		_, hash, ours := parseTag(d.Tag)
		is := p.value(d)
		name := p.byIndex[Index(d.SwIfIndex)]
		if ours && (is.Type == wire.TypeTap || is.Type == wire.TypeAFPacket || is.Type == wire.TypeMemif) {
			own = append(own, Port{
				Name:      name,
				Interface: is,
				Labels:    labels[name],
				Socket:    p.memifs.socketPath(Index(d.SwIfIndex)),
				hash:      hash,
			})
		}
	}
	slices.SortFunc(own, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range found {
		at, isPort := slices.BinarySearchFunc(own, n.V.Interface, func(p Port, name string) int {
			return cmp.Compare(p.Name, name)
		})
		if isPort {
			own[at].Addresses = append(own[at].Addresses, n.V.Address)
			own[at].PeerMAC = n.V.MAC
		}
	}
	for _, l := range limits {
		at := slices.IndexFunc(own, func(p Port) bool { return p.Name == l.V.Interface })
		if at >= 0 && l.V.Rate > 0 {
			own[at].Policers = append(own[at].Policers, l.V)
		}
	}
	return own, nil
}

// memberLabels returns the labels of the VRFs and bridge domains of our interfaces, by interface.
func (v Inventory) memberLabels(ctx context.Context) (map[string][]string, error) {
	routed, err := memberships(v).read(ctx, nil)
	if err != nil {
		return nil, err
	}
	bridged, err := bridgeMembers(v).read(ctx)
	if err != nil {
		return nil, err
	}
	labels := map[string][]string{}
	add := func(iface, label string) {
		if !slices.Contains(labels[iface], label) {
			labels[iface] = append(labels[iface], label)
		}
	}
	for _, m := range routed {
		add(m.V.Interface, strings.TrimSuffix(m.V.VRF, wire.VRFName("", m.V.Family)))
	}
	for _, m := range bridged {
		add(m.V.Interface, m.V.BridgeDomain)
	}
	return labels, nil
}

// OwnNumbers returns the numbers of our tables and bridge domains, by label.
func (v Inventory) OwnNumbers(ctx context.Context) (tables, domains map[string]uint32, err error) {
	owned, there, err := both(ctx, vrfs{c: v.c}.tables, bridges(v).read)
	if err != nil {
		return nil, nil, err
	}
	tables = map[string]uint32{}
	domains = map[string]uint32{}
	for name, t := range owned.byName {
		tables[strings.TrimSuffix(name, wire.VRFName("", t.Family))] = t.ID
	}
	for id, name := range there.names {
		domains[name] = uint32(id)
	}
	return tables, domains, nil
}

// InterfaceOf returns the object of an interface of the dataplane.
func InterfaceOf(view kvscheduler.View, i Index) (kvscheduler.Ref, bool) {
	for name := range view.All(wire.KindInterface) {
		ref := ref(wire.KindInterface, name)
		if _, meta, ok := view.Applied(ref); ok && meta == any(i) {
			return ref, true
		}
	}
	return kvscheduler.Ref{}, false
}
