package vpp

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/wire"
)

// Port is an interface of ours that leads to a link of Linux, as the dataplane has it.
type Port struct {
	Name      string         // of the vpp.interface
	Interface wire.Interface // without the key of the object that makes the link
	Addresses []netip.Addr   // that the dataplane has as static neighbours there: its Linux end's
	PeerMAC   wire.MAC       // of these neighbours; zero if there are none
	hash      uint64
}

// OwnPorts lists the taps and the interfaces of type af_packet whose tag is ours, by name: what is known of them when
// everything else is lost. A namespace whose path was too long for the API has another path here, which may lead nowhere
// by now; see MadeAs.
func (c *Client) OwnPorts(ctx context.Context) ([]Port, error) {
	p, err := c.ports(ctx)
	if err != nil {
		return nil, err
	}
	found, err := neighbours{c}.dump(ctx)
	if err != nil {
		return nil, err
	}
	var own []Port
	for _, d := range p.list {
		_, hash, ours := parseTag(d.Tag)
		v := p.value(d)
		if !ours || v.Type != wire.TypeTap && v.Type != wire.TypeAFPacket {
			continue
		}
		port := Port{Name: p.byIndex[Index(d.SwIfIndex)], Interface: v, hash: hash}
		for _, n := range found {
			if n.V.Interface == port.Name {
				port.Addresses, port.PeerMAC = append(port.Addresses, n.V.Address), n.V.MAC
			}
		}
		own = append(own, port)
	}
	slices.SortFunc(own, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return own, nil
}

// MadeAs tells whether the interface was made with just this Linux end; a dataplane may report it otherwise.
func (p Port) MadeAs(v wire.Interface) bool { return p.hash == interfaceHash(v) }
