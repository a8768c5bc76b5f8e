package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
)

// A node translates a connection of a pod to a Service twice: its destination to an endpoint, and its source, so that
// the replies pass the node again. The source becomes the client address of the pod: the last bits of the pod's address
// behind the prefix of a range, as NETMAP of iptables does. So rules can tell the clients of Services apart.

// ClientRanges has the client addresses: at most one prefix of each family, masked. The zero value has no prefix.
type ClientRanges struct{ v4, v6 netip.Prefix }

// NewClientRanges returns ranges of at most one prefix of each family.
func NewClientRanges(prefixes []netip.Prefix) (r ClientRanges, err error) {
	for _, p := range prefixes {
		of := r.of(p.Addr())
		switch {
		case !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Bits() == 0:
			return ClientRanges{}, fmt.Errorf("%s is not a CIDR, or has host bits set", p)
		case of.IsValid():
			return ClientRanges{}, fmt.Errorf("%s and %s: only one range of a family is possible", *of, p)
		}
		*of = p
	}
	return r, nil
}

func (r *ClientRanges) of(a netip.Addr) *netip.Prefix {
	if a.Is4() {
		return &r.v4
	}
	return &r.v6
}

// Prefixes lists the ranges, IPv4 first.
func (r ClientRanges) Prefixes() (list []netip.Prefix) {
	for _, p := range []netip.Prefix{r.v4, r.v6} {
		if p.IsValid() {
			list = append(list, p)
		}
	}
	return list
}

// Common returns the ranges that both have.
func (r ClientRanges) Common(o ClientRanges) ClientRanges {
	if r.v4 != o.v4 {
		r.v4 = netip.Prefix{}
	}
	if r.v6 != o.v6 {
		r.v6 = netip.Prefix{}
	}
	return r
}

// Of returns the client addresses of the addresses in a prefix, which are a prefix of the same length; false if there
// is no range of the family, or it is smaller than the prefix.
func (r ClientRanges) Of(pods netip.Prefix) (netip.Prefix, bool) {
	of := *r.of(pods.Addr())
	if !of.IsValid() || pods.Bits() < of.Bits() {
		return netip.Prefix{}, false
	}
	raw := pods.Addr().AsSlice()
	network := of.Addr().AsSlice()
	for i := range raw {
		host := byte(0xff >> min(max(of.Bits()-8*i, 0), 8))
		raw[i] = network[i] | raw[i]&host
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, pods.Bits()), true
}

// ClientMap knows which addresses pods have, and so which have a client address. The zero value has no client
// addresses. A map never changes.
type ClientMap struct {
	ranges  ClientRanges
	pods    []netip.Prefix // that have client addresses; sorted, apart
	clients []netip.Prefix // of pods
}

// NewClientMap returns the map for the ranges that pods have their addresses of. nodes are other addresses in use. Of a
// family with ambiguous client addresses the map has no address, and why has the reason.
func NewClientMap(r ClientRanges, pods []netip.Prefix, nodes []netip.Addr) (m ClientMap, why []string) {
	pods = aggregate(pods)
	m.ranges = r
	for _, of := range r.Prefixes() {
		if reason := r.ambiguous(of, pods, nodes); reason != "" {
			why = append(why, fmt.Sprintf("%s: %s", of, reason))
			*m.ranges.of(of.Addr()) = netip.Prefix{}
		}
	}
	for _, p := range pods {
		if c, ok := m.ranges.Of(p); ok {
			m.pods = append(m.pods, p)
			m.clients = append(m.clients, c)
		}
	}
	return m, why
}

// ambiguous says why a client address in the range of a family could belong to several pods, or to something else, too;
// "" if it could not.
func (r ClientRanges) ambiguous(of netip.Prefix, pods []netip.Prefix, nodes []netip.Addr) string {
	var clients []netip.Prefix
	for _, p := range pods {
		if p.Addr().Is4() != of.Addr().Is4() {
			continue
		}
		c, ok := r.Of(p)
		if !ok {
			return fmt.Sprintf("it is smaller than the range %s of pods", p)
		}
		clients = append(clients, c)
	}
	slices.SortFunc(clients, netip.Prefix.Compare)
	for i, c := range clients {
		if i > 0 && clients[i-1].Overlaps(c) {
			return fmt.Sprintf("pods of several ranges would have the client addresses %s", c)
		}
		if at := slices.IndexFunc(pods, c.Overlaps); at >= 0 {
			return fmt.Sprintf("the client addresses %s overlap the range %s of pods", c, pods[at])
		}
		if at := slices.IndexFunc(nodes, c.Contains); at >= 0 {
			return fmt.Sprintf("the client addresses %s have the address %s of a node", c, nodes[at])
		}
	}
	return ""
}

// Ranges returns the ranges with client addresses in use.
func (m ClientMap) Ranges() ClientRanges { return m.ranges }

// Equal reports whether both maps are the same.
func (m ClientMap) Equal(o ClientMap) bool {
	return m.ranges == o.ranges && slices.Equal(m.pods, o.pods)
}

// Of returns the client address of a pod's address; false without one.
func (m ClientMap) Of(a netip.Addr) (netip.Addr, bool) {
	if !contain(m.pods, a) {
		return netip.Addr{}, false
	}
	c, ok := m.ranges.Of(netaddr.Single(a))
	return c.Addr(), ok
}

// sourcesOf lists the addresses of an interface, and its client addresses.
func (m ClientMap) sourcesOf(i *Interface) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range i.Addresses {
		all = append(all, netaddr.Single(a))
		if client, has := m.Of(a); has {
			all = append(all, netaddr.Single(client))
		}
	}
	return all
}

// PodOf returns the address of the pod with a client address; false if no pod has it.
func (m ClientMap) PodOf(client netip.Addr) (netip.Addr, bool) {
	for i, c := range m.clients {
		if c.Contains(client) { // the bits behind the prefix are the same
			of, _ := NewClientRanges([]netip.Prefix{m.pods[i]})
			p, _ := of.Of(netaddr.Single(client))
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// contain reports whether one of the sorted prefixes, none of which overlaps another, contains an address.
func contain(prefixes []netip.Prefix, a netip.Addr) bool {
	at, exact := slices.BinarySearchFunc(prefixes, netaddr.Single(a), netip.Prefix.Compare)
	// a prefix that begins with the address is shorter, and so before it
	return exact || at > 0 && prefixes[at-1].Contains(a)
}

// Sources returns the addresses that packets from the addresses in a prefix can have as their source: also the client
// addresses of the pods in it, but no client addresses of other pods.
func (m ClientMap) Sources(p netip.Prefix) []netip.Prefix {
	var clients, others []netip.Prefix
	for i, pods := range m.pods {
		both, some := intersect(p, pods)
		if !some {
			others = append(others, m.clients[i])
			continue
		}
		is, _ := m.ranges.Of(both)
		clients = append(clients, is)
		others = append(others, subtract(m.clients[i], clients[len(clients)-1:])...)
	}
	return append(subtract(p, others), clients...)
}
