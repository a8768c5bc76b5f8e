package ipnet

import (
	"net/netip"

	"github.com/weftnet/weft/wire"
)

// onlyFrom has the dataplane drop what comes by a link from another MAC than the Linux end's, or from another source than
// these and the end's own IPv6 link-local address.
func (l link) onlyFrom(v *values, sources ...netip.Prefix) {
	rules := wire.MACIP{Interface: l.object}
	for _, p := range append(sources, single(linkLocalOf(l.peerMAC))) {
		rules.Rules = append(rules.Rules, wire.MACIPRule{MAC: l.peerMAC, Source: p})
	}
	v.add(wire.MACIPKey(l.object), rules)
}

// singles are the addresses of prefixes, each alone.
func singles(prefixes []netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range prefixes {
		all = append(all, single(p.Addr()))
	}
	return all
}
