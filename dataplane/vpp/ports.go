package vpp

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"
	"go.fd.io/govpp/codec"

	"github.com/weftnet/weft/kvscheduler"
	"github.com/weftnet/weft/wire"
)

// Index is the dataplane's number of an interface (sw_if_index).
type Index uint32

// noIndex is all interfaces in a dump.
const noIndex = ^Index(0)

func (i Index) api() interface_types.InterfaceIndex { return interface_types.InterfaceIndex(i) }

// ports are the interfaces of the dataplane as one dump found them.
type ports struct {
	list    []*interfaces.SwInterfaceDetails
	taps    map[Index]*tapv2.SwInterfaceTapV2Details
	links   map[Index]string // of Linux, that interfaces of type af_packet hold
	memifs  map[Index]*memif.MemifDetails
	vxlans  map[Index]wire.VXLAN
	sockets map[SocketID]string // that memifs are on
	byIndex map[Index]string    // names of ours
	byName  map[string]*interfaces.SwInterfaceDetails

	socketsDir string // a memif on a socket below it is ours
}

// ports dumps all interfaces.
func (c *Client) ports(ctx context.Context) (*ports, error) {
	all := askAll(&interfaces.SwInterfaceDump{SwIfIndex: noIndex.api()}, &interfaces.SwInterfaceDetails{})
	taps := askAll(&tapv2.SwInterfaceTapV2Dump{SwIfIndex: noIndex.api()}, &tapv2.SwInterfaceTapV2Details{})
	links := askAll(&af_packet.AfPacketDump{}, &af_packet.AfPacketDetails{})
	memifs, sockets, vxlans := dumpMemifs(), dumpSockets(), dumpVXLANs()
	if err := c.exchangeAll(ctx, []*request{all, taps, links, memifs, sockets, vxlans}); err != nil {
		return nil, err
	}
	p := &ports{
		list: listOf[*interfaces.SwInterfaceDetails](all), taps: map[Index]*tapv2.SwInterfaceTapV2Details{},
		links: map[Index]string{}, memifs: memifsIn(memifs), sockets: socketsIn(sockets), vxlans: vxlansIn(vxlans),
		byIndex: map[Index]string{}, byName: map[string]*interfaces.SwInterfaceDetails{}, socketsDir: c.options.Sockets,
	}
	for _, t := range listOf[*tapv2.SwInterfaceTapV2Details](taps) {
		p.taps[Index(t.SwIfIndex)] = t
	}
	for _, l := range listOf[*af_packet.AfPacketDetails](links) {
		p.links[Index(l.SwIfIndex)] = l.HostIfName
	}
	p.index()
	return p, nil
}

// index names our interfaces.
func (p *ports) index() {
	for _, d := range p.list {
		name, _, ours := p.identity(d)
		if _, taken := p.byName[name]; taken {
			name = duplicate(name, Index(d.SwIfIndex))
		}
		if ours {
			p.byIndex[Index(d.SwIfIndex)], p.byName[name] = name, d
		}
	}
}

// identity tells whose an interface is: by its tag, or, of one that died before it got one, by its number, its link or
// its socket.
func (p *ports) identity(d *interfaces.SwInterfaceDetails) (name string, hash uint64, ours bool) {
	if name, hash, ours = parseTag(d.Tag); ours || d.Tag != "" {
		return name, hash, ours
	}
	instance, ok := loopbackInstance(d)
	if !ok {
		instance, ok = vxlanInstance(d)
	}
	if ok && instance >= firstInstance || diedUntagged(d) || p.diedAsMemif(Index(d.SwIfIndex)) {
		return "untagged-" + d.InterfaceName, 0, true
	}
	return "", 0, false
}

// duplicate names a second interface with the tag of another: made by Weft, but not desired.
func duplicate(name string, i Index) string { return fmt.Sprintf("%s#%d", name, i) }

// nameOf names an interface, in a form that no desired value has if it is not ours.
func (p *ports) nameOf(i Index) string {
	if name, ok := p.byIndex[i]; ok {
		return name
	}
	return fmt.Sprintf("#%d", i)
}

// named are our interfaces by name; if there are names of objects, only those that one of these names begins with.
func (p *ports) named(names []string) map[string]Index {
	chosen := map[string]Index{}
	for name, d := range p.byName {
		if len(names) == 0 || concerns(name, names) {
			chosen[name] = Index(d.SwIfIndex)
		}
	}
	return chosen
}

// concerns reports whether one of the objects' names is that of the interface, or goes on behind it.
func concerns(iface string, names []string) bool {
	for _, n := range names {
		if rest, ok := strings.CutPrefix(n, iface); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

func mac(d *interfaces.SwInterfaceDetails) wire.MAC { return wire.MAC(d.L2Address) }

// Port is an interface of ours that leads to a pod, as the dataplane has it.
type Port struct {
	Name      string         // of the vpp.interface
	Interface wire.Interface // without the key of the object that makes the link
	Addresses []netip.Addr   // that the dataplane has as static neighbours there: its Linux end's
	PeerMAC   wire.MAC       // of these neighbours; zero if there are none
	Socket    string         // of a memif: the path of its socket; the id on it and the mode are in Interface.Memif, no more
	Labels    []string       // of the VRFs and of the bridge domain that it is in, each once
	hash      uint64
}

// MadeAs tells whether the interface was made with just this Linux end or memif; a dataplane may report it otherwise.
func (p Port) MadeAs(v wire.Interface) bool { return p.hash == interfaceHash(v) }

// Queues finds out how many queues the interface reads from and writes to, which no dataplane reports; made says that it was
// made just as v says but for them.
func (p Port) Queues(v wire.Interface) (rx, tx int, made bool) {
	for n := range wire.MaxQueues * wire.MaxQueues {
		rx, tx = 1+n/wire.MaxQueues, 1+n%wire.MaxQueues
		v.Tap.Queues, v.AFPacket.RxQueues, v.AFPacket.TxQueues = rx, rx, tx
		if (v.Type != wire.TypeTap || rx == tx) && p.MadeAs(v) {
			return rx, tx, true
		}
	}
	return 0, 0, false
}

// OwnPorts lists the taps, the interfaces of type af_packet and the memifs whose tag is ours, by name: what is known of
// them when everything else is lost. A namespace whose path was too long for the API has another path here, which may lead
// nowhere by now; see MadeAs.
func (c *Client) OwnPorts(ctx context.Context) ([]Port, error) {
	p, err := c.ports(ctx)
	if err != nil {
		return nil, err
	}
	found, err := neighbours{c}.dump(ctx)
	if err != nil {
		return nil, err
	}
	labels, err := c.memberLabels(ctx)
	if err != nil {
		return nil, err
	}
	var own []Port
	for _, d := range p.list {
		_, hash, ours := parseTag(d.Tag)
		v, name := p.value(d), p.byIndex[Index(d.SwIfIndex)]
		if ours && (v.Type == wire.TypeTap || v.Type == wire.TypeAFPacket || v.Type == wire.TypeMemif) {
			own = append(own, Port{Name: name, Interface: v, Labels: labels[name], Socket: p.socketPath(Index(d.SwIfIndex)), hash: hash})
		}
	}
	slices.SortFunc(own, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range found {
		at, isPort := slices.BinarySearchFunc(own, n.V.Interface, func(p Port, name string) int { return cmp.Compare(p.Name, name) })
		if isPort {
			own[at].Addresses, own[at].PeerMAC = append(own[at].Addresses, n.V.Address), n.V.MAC
		}
	}
	return own, nil
}

// memberLabels are the labels of what our interfaces are in, by interface.
func (c *Client) memberLabels(ctx context.Context) (map[string][]string, error) {
	routed, err := memberships{c}.read(ctx, nil)
	if err != nil {
		return nil, err
	}
	bridged, err := bridgeMembers{c}.dump(ctx)
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

// OwnNumbers are the numbers of our tables and bridge domains, by label.
func (c *Client) OwnNumbers(ctx context.Context) (tables, domains map[string]uint32, err error) {
	byName, _, err := c.tables(ctx)
	if err != nil {
		return nil, nil, err
	}
	there, err := c.bridges(ctx)
	if err != nil {
		return nil, nil, err
	}
	tables, domains = map[string]uint32{}, map[string]uint32{}
	for name, t := range byName {
		tables[strings.TrimSuffix(name, wire.VRFName("", t.Family))] = t.ID
	}
	for id, name := range there.names {
		domains[name] = uint32(id)
	}
	return tables, domains, nil
}

// watchInterfaces asks the dataplane for events, and passes on those of interfaces that were deleted or set down.
func (s *session) watchInterfaces(ctx context.Context, limit time.Duration, disturbed func(Index)) error {
	id, err := s.id(&interfaces.SwInterfaceEvent{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.event, s.onEvent = id, func(data []byte) {
		var e interfaces.SwInterfaceEvent
		if codec.DecodeMsg(data, &e) == nil && (e.Deleted || e.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP == 0) {
			disturbed(Index(e.SwIfIndex))
		}
	}
	s.mu.Unlock()
	r := ask("want_interface_events", &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: uint32(os.Getpid())}, &interfaces.WantInterfaceEventsReply{})
	s.exchange(ctx, limit, []*request{r})
	return r.fault()
}

// InterfaceOf returns the object of an interface of the dataplane.
func InterfaceOf(view kvscheduler.View, i Index) (kvscheduler.Ref, bool) {
	for name := range view.All(wire.KindInterface) {
		ref := kvscheduler.Ref{Kind: wire.KindInterface, Name: name}
		if _, meta, ok := view.Applied(ref); ok && meta == any(i) {
			return ref, true
		}
	}
	return kvscheduler.Ref{}, false
}
