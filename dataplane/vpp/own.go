package vpp

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/weftnet/weft/wire"
)

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
