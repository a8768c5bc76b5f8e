package vpp

import (
	"context"
	"fmt"
	"strings"

	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"

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

// duplicate names a second interface with the tag of another: ours, but nobody's wish.
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
