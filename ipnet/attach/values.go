package attach

import (
	"net/netip"
	"slices"

	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// podValues lists the values of an attachment that are desired.
func (ps *Pods) podValues(a *pod.Attachment) desired.Values {
	return ps.desirable(a.Key, ps.valuesOf(a, ps.siblings))
}

// valuesOf lists the values of an attachment. They follow from its record, its networks, and the memifs of its siblings.
func (ps *Pods) valuesOf(a *pod.Attachment, siblings siblingsFunc) desired.Values {
	var v desired.Values
	for _, i := range a.Interfaces {
		v = append(v, ps.interfaceValues(a, i)...)
	}
	v = append(v, ps.routesOutside(a)...)
	v = append(v, ps.deviceValues(a, siblings)...)
	if len(v) > 0 {
		v.Add(wire.NamespaceKey(a.Netns.Path), wire.Namespace(a.Netns))
	}
	return v
}

// interfaceValues lists the values of one interface; none for an interface of another plugin or of an unknown network. The values of a
// direct memif are those of both ends.
func (ps *Pods) interfaceValues(a *pod.Attachment, i pod.Interface) desired.Values {
	c := ps.networks.Custom(i.Network)
	if i.Type == pod.TypeIPAM || i.Memif != nil && i.Memif.IsDirect() || c == nil && desired.IsCustom(i.Network) {
		return nil
	}
	l := linkOf(a, i)
	l.MaxSegment = ps.host.Config.MaxSegment
	l.Forwards = ps.config.AllowIPForwarding
	l.Rules = ps.rulesOf(a.Pod)[i.Name]
	if i.Memif != nil {
		if l.Secret = ps.secretOf(i.Memif.Allocation); l.Secret == "" {
			return nil // a memif is never served without a secret
		}
	}
	v := l.Ends()
	switch {
	case c != nil:
		v = append(v, c.Attach(l)...)
	case i.Network == "":
		v = append(v, ps.attachToDefault(a, l)...)
	}
	if !l.IsLinux() {
		return v
	}
	if c == nil || c.Network.Type == pod.L3 {
		for _, gateway := range i.Gateways {
			l.LinuxNeighbour(&v, gateway)
		}
	}
	for _, r := range i.Routes {
		l.LinuxRoute(&v, r.Destination, r.Gateway, netip.Addr{})
	}
	return v
}

// attachToDefault connects a link to the network default. Through its main interface, which has the default route, a pod may send from
// all its addresses on the network.
func (ps *Pods) attachToDefault(a *pod.Attachment, l desired.Link) desired.Values {
	var v desired.Values
	l.Filter(&v)
	v = append(v, desired.PodsVRF.Attach(l, ps.networks.Pools().Families())...)
	if l.AntiSpoofed {
		var sources []netip.Prefix
		for _, i := range a.Interfaces {
			if i.Network == "" {
				sources = append(sources, desired.Singles(i.Addresses)...)
			}
		}
		l.OnlyFrom(&v, sources...)
	}
	host := ps.host.HostLink()
	for _, p := range l.Addresses {
		family := wire.FamilyOf(p.Addr())
		if node := ps.networks.NodeAddress(family); node.IsValid() && ps.networks.Pools().Of(p.Addr()) == "" { // the routes to pools do not cover it
			host.LinuxRoute(&v, desired.Single(p.Addr()), desired.GatewayOf(family), node)
		}
	}
	return v
}

// routesOutside lists the routes of a pod to the subnets of external interfaces, unless the pod has a route there.
func (ps *Pods) routesOutside(a *pod.Attachment) desired.Values {
	if len(ps.externals.All()) == 0 {
		return nil
	}
	taken := make(map[netip.Prefix]bool)
	for _, i := range a.Interfaces {
		if i.Memif != nil { // its program has routes of its own
			continue
		}
		for _, p := range leadsTo(i) {
			taken[p] = true
		}
	}
	var v desired.Values
	for _, i := range a.Interfaces {
		for _, p := range ps.externals.SubnetsOf(i.Network) {
			gateway := towards(i, p)
			if !gateway.IsValid() || taken[p] {
				continue
			}
			taken[p] = true
			linkOf(a, i).LinuxRoute(&v, p, gateway, netip.Addr{})
		}
	}
	return v
}

// towards returns the gateway of an interface to a subnet; not valid if no route is needed, or the interface has no network route.
func towards(i pod.Interface, subnet netip.Prefix) netip.Addr {
	at := slices.IndexFunc(i.Gateways, func(g netip.Addr) bool { return g.Is4() == subnet.Addr().Is4() })
	byDefault := slices.ContainsFunc(i.Routes, func(r pod.Route) bool { return r.Destination == desired.DefaultOf(wire.FamilyOf(subnet.Addr())) })
	if at < 0 || byDefault || len(i.Routes) == 0 || i.Memif != nil || i.Type == pod.TypeIPAM {
		return netip.Addr{}
	}
	return i.Gateways[at]
}

func linkOf(a *pod.Attachment, i pod.Interface) desired.Link {
	l := desired.Link{
		Kind: i.Type, Object: i.Object, Namespace: a.Netns.Path, Name: i.Name, Alias: desired.AliasOf(a.Key, i.Name),
		MAC: desired.MACOf(i.Object, desired.DataplaneEnd), PeerMAC: desired.MACOf(i.Object, desired.LinuxEnd), MTU: i.MTU, Addresses: i.Addresses,
		AntiSpoofed: i.AntiSpoof || i.Network == "" && i.Name == a.Key.IfName, Memif: i.Memif,
		RxQueues: i.RxQueues, TxQueues: i.TxQueues,
	}
	if mac, err := wire.ParseMAC(i.MAC); err == nil { // as requested
		l.PeerMAC = mac
	}
	return l
}
