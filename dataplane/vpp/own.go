package vpp

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/wire"
)

// Tap is a tap of ours as the dataplane has it.
type Tap struct {
	Name string // of the vpp.interface
	wire.Tap
	Addresses []netip.Addr // that the dataplane has as static neighbours there: its Linux end's
	hash      uint64
}

// OwnTaps lists the taps whose tag is ours, by name: what is known of them when everything else is lost. A namespace
// whose path was too long for the API has another path here, which may lead nowhere by now; see MadeAs.
func (c *Client) OwnTaps(ctx context.Context) ([]Tap, error) {
	p, err := c.ports(ctx)
	if err != nil {
		return nil, err
	}
	found, err := neighbours{c}.dump(ctx)
	if err != nil {
		return nil, err
	}
	addresses := map[string][]netip.Addr{}
	for _, n := range found {
		addresses[n.V.Interface] = append(addresses[n.V.Interface], n.V.Address)
	}
	var taps []Tap
	for _, d := range p.list {
		t, isTap := p.taps[Index(d.SwIfIndex)]
		if _, hash, ours := parseTag(d.Tag); ours && isTap {
			name := p.byIndex[Index(d.SwIfIndex)]
			taps = append(taps, Tap{Name: name, Tap: tapOf(t), Addresses: addresses[name], hash: hash})
		}
	}
	slices.SortFunc(taps, func(a, b Tap) int { return cmp.Compare(a.Name, b.Name) })
	return taps, nil
}

// MadeAs tells whether the tap was made with just this Linux end; a dataplane may report it otherwise.
func (t Tap) MadeAs(end wire.Tap) bool {
	return t.hash == interfaceHash(wire.Interface{Type: wire.TypeTap, Tap: end})
}
