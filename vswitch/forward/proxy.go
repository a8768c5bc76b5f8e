package forward

import (
	"net/netip"

	"github.com/weftnet/weft/vswitch/slow"
)

// Proxies are the addresses that interfaces answer for, in addition to their own.
type Proxies struct {
	ARP []ProxyRange // for interfaces with ProxyARP
	ND  []ProxyHost  // for all interfaces
}

// ProxyRange is the IPv4 addresses from Low to High, inclusive, for the interfaces of a table.
type ProxyRange struct {
	Table     uint32
	Low, High netip.Addr
}

// ProxyHost is an IPv6 host behind Interface, for the other interfaces of a table.
type ProxyHost struct {
	Table     uint32
	Addr      netip.Addr
	Interface uint32
}

// proxies are Proxies by table.
type proxies struct {
	ranges map[uint32][]slow.Range
	hosts  map[uint32]map[netip.Addr]uint32
}

// SetProxies replaces all proxied addresses.
func (rt *routing) SetProxies(p Proxies) {
	next := &proxies{ranges: map[uint32][]slow.Range{}, hosts: map[uint32]map[netip.Addr]uint32{}}
	for _, r := range p.ARP {
		next.ranges[r.Table] = append(next.ranges[r.Table], slow.Range{Low: r.Low, High: r.High})
	}
	for _, h := range p.ND {
		if next.hosts[h.Table] == nil {
			next.hosts[h.Table] = map[netip.Addr]uint32{}
		}
		next.hosts[h.Table][h.Addr] = h.Interface
	}
	rt.edit().proxies = next
}

// proxied returns the addresses that an interface answers for.
func (s *snapshot) proxied(i *iface) slow.Proxied {
	p := slow.Proxied{All: i.proxyND}
	if s.proxies == nil {
		return p
	}
	if i.proxyARP {
		p.Ranges = s.proxies.ranges[i.table4]
	}
	p.Hosts = s.proxies.hosts[i.table6]
	return p
}

// maySolicitProxied reports whether a unicast solicitation may ask for a proxied address: its sender may have cached an
// earlier answer.
func (s *snapshot) maySolicitProxied(in *iface) bool {
	return in.proxyND || s.proxies != nil && len(s.proxies.hosts) > 0
}
