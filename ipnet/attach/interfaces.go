package attach

import (
	"net/netip"
	"path"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// connectivity lists the objects of attachments. They follow from the record of an attachment, its networks, the rules
// of its pod, and the memifs of its siblings. It has a function for each kind of interface: tap, veth, memif and
// directMemif. Its functions have no side effects.
type connectivity struct {
	networks  *networks.Networks
	host      *mesh.Host
	externals *mesh.Externals
	rules     *podRules
	secret    func(allocation string) secret.Text // nil: the node has no memifs
	forwards  bool                                // pods' kernels forward packets
}

// part are objects of an attachment that belong to the same interfaces.
type part struct {
	interfaces []string
	values     desired.Values
}

// siblingsFunc lists the other attachments of a sandbox.
type siblingsFunc func(pod.Key, pod.Netns) []*pod.Attachment

// valuesOf lists the objects of an attachment.
func (c *connectivity) valuesOf(a *pod.Attachment, siblings siblingsFunc) desired.Values {
	var v desired.Values
	for _, p := range c.partsOf(a, siblings) {
		v = append(v, p.values...)
	}
	return v
}

// partsOf lists the objects of an attachment by the interfaces that they belong to. The namespace belongs to the
// interface that the request names.
func (c *connectivity) partsOf(a *pod.Attachment, siblings siblingsFunc) []part {
	var parts []part
	for _, i := range a.Interfaces {
		parts = append(parts, part{[]string{i.Name}, c.interfaceValues(a, i)})
	}
	parts = append(parts, c.podToExternalRoutes(a)...)
	parts = append(parts, c.containers(a, siblings)...)
	if slices.ContainsFunc(parts, func(p part) bool { return len(p.values) > 0 }) {
		var v desired.Values
		v.Add(wire.NamespaceKey(a.Netns.Path), wire.Namespace(a.Netns))
		parts = append(parts, part{[]string{a.Key.IfName}, v})
	}
	return parts
}

// port is an interface of an attachment, with the link and the network that it connects.
type port struct {
	desired.Link
	record  pod.Interface
	of      *pod.Attachment
	network network
}

// interfaceValues lists the objects of one interface. An interface of another plugin or of an unknown network has no
// objects; a direct memif has objects only together with the other end.
func (c *connectivity) interfaceValues(a *pod.Attachment, i pod.Interface) desired.Values {
	n := networkNamed(i.Network, c.networks)
	isUnknown := n.custom == nil && desired.IsCustom(n.name)
	if isUnknown || i.Type == pod.TypeIPAM || i.Memif != nil && i.Memif.IsDirect() {
		return nil
	}
	p := port{Link: linkOf(a, i), record: i, of: a, network: n}
	p.MaxSegment = c.host.Config.MaxSegment
	p.Forwards = c.forwards || i.Forwarding
	p.Rules = c.rules.of(a.Pod)[i.Name]
	p.Guarded = n.isGuarded()
	switch i.Type {
	case pod.TypeMemif:
		return c.memif(p)
	case pod.TypeVeth:
		return c.veth(p)
	}
	return c.tap(p)
}

// tap lists the objects of a tap. The dataplane creates both ends and moves one into the pod.
func (c *connectivity) tap(p port) desired.Values {
	var v desired.Values
	v.Add(p.DataplaneTap())
	v = append(v, dataplaneLimits(p)...)
	v.Add(p.LinuxTap())
	return append(v, c.linkInPod(p)...)
}

// veth lists the objects of a veth. The kernel creates both ends; the dataplane opens the node's end.
func (c *connectivity) veth(p port) desired.Values {
	var v desired.Values
	v.Add(p.DataplaneVeth())
	v = append(v, dataplaneLimits(p)...)
	v.Add(p.LinuxVeth())
	return append(v, c.linkInPod(p)...)
}

// linkInPod lists the further objects of an interface with a link in the pod, a tap or a veth: the settings of the
// link, and the roads to the pod and from it.
func (c *connectivity) linkInPod(p port) desired.Values {
	var v desired.Values
	v.Add(p.LinuxHardening())
	v = append(v, p.LinuxSysctls()...)
	v = append(v, p.LinuxAddresses()...)
	v = append(v, dataplaneToPod(p)...)
	v = append(v, c.hostToPodRoutes(p)...)
	v = append(v, podToGatewayNeighbours(p)...)
	v = append(v, podToNetworkRoutes(p)...)
	return v
}

// memif lists the objects of a memif. The other end is a program, which learns its addresses and routes from a file:
// see containers. A memif is never served without a secret.
func (c *connectivity) memif(p port) desired.Values {
	p.Secret = c.secretOf(p.Memif.Allocation)
	if p.Secret == "" {
		return nil
	}
	var v desired.Values
	v.Add(p.DataplaneMemif())
	v = append(v, dataplaneLimits(p)...)
	v = append(v, dataplaneToPod(p)...)
	v = append(v, c.hostToPodRoutes(p)...)
	return v
}

// directMemif lists the objects that connect two memifs without the dataplane: the splice of their control sockets, and
// the socket that the client connects to. Both exist only while both allocations have a secret.
func (c *connectivity) directMemif(client, server end) desired.Values {
	clientToServer := wire.MemifSplice{
		Directory:    wire.FileKey(directoryOf(client.Memif)),
		ClientID:     client.Memif.ID,
		ClientSecret: c.secretOf(client.Memif.Allocation),
		ServerID:     server.Memif.ID,
		ServerSecret: c.secretOf(server.Memif.Allocation),
		Namespace:    wire.Namespace(server.of.Netns),
		Server:       server.ServerSocket(),
	}
	if clientToServer.ClientSecret == "" || clientToServer.ServerSecret == "" {
		return nil
	}
	socket := client.Memif.DirectSocket()
	var v desired.Values
	v.Add(wire.MemifSpliceKey(socket), clientToServer)
	v.Add(wire.FileKey(socket), socketFile(client.Memif, wire.MemifSpliceKey(socket)))
	return v
}

// dataplaneToPod lists the objects by which the dataplane filters the packets of an interface, and forwards packets of
// its network to the pod. The network stub has no such objects.
func dataplaneToPod(p port) desired.Values {
	if p.network.isStub() {
		return nil
	}
	var v desired.Values
	p.Filter(&v)
	if p.network.isBridged() {
		v.Add(podInBridgeDomain(p))
		v = append(v, bviToPodNeighbours(p)...)
		v = append(v, bridgeToPodMACs(p)...)
		v = append(v, podToBridgeAnnouncements(p)...)
		v = append(v, trunk(p)...)
	} else {
		vrf, families := p.network.vrf()
		v = append(v, vrf.Attach(p.Link, families)...)
		v = append(v, networkToRoutedPrefixes(p)...)
	}
	if p.AntiSpoofed {
		p.OnlyFrom(&v, sourcesOf(p), virtualMACsOf(p))
	}
	return v
}

// networkToRoutedPrefixes lists the routes of the network to the prefixes behind the pod.
func networkToRoutedPrefixes(p port) desired.Values {
	vrf, _ := p.network.vrf()
	var v desired.Values
	for _, prefix := range p.record.RoutedPrefixes {
		path := wire.Path{Interface: p.Object}
		if p.HasMACs() {
			path.NextHop = addressOfFamily(p.Addresses, netaddr.FamilyOf(prefix.Addr()))
		}
		vrf.Route(&v, prefix, path)
	}
	return v
}

// addressOfFamily returns the address of a family; not valid if there is none.
func addressOfFamily(addresses []netip.Prefix, f netaddr.Family) netip.Addr {
	at := slices.IndexFunc(addresses, func(p netip.Prefix) bool { return netaddr.FamilyOf(p.Addr()) == f })
	if at < 0 {
		return netip.Addr{}
	}
	return addresses[at].Addr()
}

// podInBridgeDomain makes the dataplane's end a member of the network's bridge domain.
func podInBridgeDomain(p port) (string, wire.BridgeMember) {
	member := wire.BridgeMember{
		BridgeDomain: p.network.custom.Label,
		Interface:    p.Object,
		AntiSpoofed:  p.AntiSpoofed,
		Filtered:     p.IsFiltered(),
		LinuxEnd:     p.LinuxEnd(),
	}
	if len(p.network.vlans()) > 0 {
		member.Rest = wire.InterfaceKey(desired.RestOf(p.Object))
	}
	return wire.BridgeMemberKey(p.Object), member
}

// bviToPodNeighbours lists the static neighbours of the network's BVI, if it has one, for the addresses of the pod. So
// the BVI sends no ARP or ND requests, and forgets a member that is gone.
func bviToPodNeighbours(p port) desired.Values {
	if !p.network.hasGateway() {
		return nil
	}
	addresses := desired.Singles(p.Addresses)
	if desired.HasFamily(p.Addresses, netaddr.IP6) {
		// the source of neighbour solicitations
		addresses = append(addresses, netaddr.Single(desired.LinkLocalOf(p.PeerMAC)))
	}
	var v desired.Values
	for _, prefix := range addresses {
		v.Add(wire.NeighbourKey(p.network.custom.Loopback, prefix.Addr()), wire.Neighbour{
			Interface: p.network.custom.Loopback,
			Address:   prefix.Addr(),
			MAC:       p.PeerMAC,
		})
	}
	return v
}

// bridgeToPodMACs lists the static entry of the bridge domain for the MAC that Weft gave to the pod. So no other member
// can take it over, and a MAC flood cannot push it out of the table. A program in the pod may use further MACs: the
// dataplane learns these.
func bridgeToPodMACs(p port) desired.Values {
	var v desired.Values
	if p.HasMACs() && p.PeerMAC.IsUnicast() {
		label := p.network.custom.Label
		v.Add(wire.L2FIBKey(label, p.PeerMAC), wire.L2FIB{BridgeDomain: label, MAC: p.PeerMAC, Interface: p.Object})
	}
	return v
}

// podToBridgeAnnouncements lists the announcements of the pod's addresses to its neighbours, which may have entries of
// an earlier pod with them. A memif has the MAC of the earlier one.
func podToBridgeAnnouncements(p port) desired.Values {
	if p.Kind == pod.TypeMemif {
		return nil
	}
	var v desired.Values
	for _, prefix := range p.Addresses {
		v.Add(wire.AnnouncementKey(p.LinuxKey(), prefix.Addr()), wire.Announcement{
			On:        p.LinuxKey(),
			Namespace: p.Namespace,
			Link:      p.Name,
			Address:   prefix.Addr(),
			Member:    wire.BridgeMemberKey(p.Object),
		})
	}
	return v
}

// sourcesOf lists the sources that an anti-spoofed interface may send from. Through its main interface, which has the
// default route, a pod may send from all its addresses on the network default.
func sourcesOf(p port) []netip.Prefix {
	switch {
	case p.network.hasNoCIDRs(): // only the MAC of the pod is known
		return []netip.Prefix{desired.DefaultOf(netaddr.IP4), desired.DefaultOf(netaddr.IP6)}
	case p.network.custom != nil:
		return slices.Concat(desired.Singles(p.Addresses), p.moving().Addresses, p.record.RoutedPrefixes)
	}
	var sources []netip.Prefix
	for _, i := range p.of.Interfaces {
		if i.Network == "" {
			sources = append(sources, desired.Singles(i.Addresses)...)
		}
	}
	return sources
}

// movingOf returns what an interface may use although other interfaces may too: what it requested at its ADD, and what
// its network permits to the pod now.
func movingOf(i pod.Interface, id pod.ID, n network) pod.Moving {
	m := pod.Moving{Addresses: i.AllowedAddresses, VirtualRouters: i.VirtualRouters}
	if n.custom == nil {
		return m
	}
	return m.With(n.custom.Network.PermittedTo(id))
}

// moving is movingOf of a port.
func (p port) moving() pod.Moving { return movingOf(p.record, p.of.Pod, p.network) }

// virtualMACsOf lists the MACs of the virtual routers of an interface.
func virtualMACsOf(p port) []netaddr.MAC {
	var macs []netaddr.MAC
	for _, id := range p.moving().VirtualRouters {
		macs = append(macs, pod.MACsOfVirtualRouter(id)...)
	}
	return macs
}

// hostToPodRoutes lists the routes of the node's kernel to addresses on the network default that are outside of its
// pools. It reaches the other addresses by its routes to the pools.
func (c *connectivity) hostToPodRoutes(p port) desired.Values {
	if !p.network.isDefault() {
		return nil
	}
	var v desired.Values
	host := c.host.HostLink()
	for _, prefix := range p.Addresses {
		address := prefix.Addr()
		family := netaddr.FamilyOf(address)
		node := c.networks.NodeAddress(family)
		if node.IsValid() && c.networks.Pools().Of(address) == "" {
			host.LinuxRoute(&v, netaddr.Single(address), desired.GatewayOf(family), node)
		}
	}
	return v
}

// podToGatewayNeighbours lists the static neighbours of the pod for its gateways. On a bridged network the gateway
// answers ARP and ND, as all neighbours do.
func podToGatewayNeighbours(p port) desired.Values {
	if p.network.isBridged() {
		return nil
	}
	var v desired.Values
	for _, gateway := range p.record.Gateways {
		p.LinuxNeighbour(&v, gateway)
	}
	return v
}

// podToNetworkRoutes lists the routes of the pod in its record: to the gateway, to the network or everywhere.
func podToNetworkRoutes(p port) desired.Values {
	var v desired.Values
	for _, r := range p.record.Routes {
		p.LinuxPodRoute(&v, r)
	}
	return v
}

// podToExternalRoutes lists the routes of a pod to the subnets of external interfaces, except where it has a route.
func (c *connectivity) podToExternalRoutes(a *pod.Attachment) []part {
	if len(c.externals.All()) == 0 {
		return nil
	}
	taken := make(map[netip.Prefix]bool)
	for _, i := range a.Interfaces {
		if i.Memif != nil { // its program has its own routes
			continue
		}
		for _, p := range destinationsOfInterface(i) {
			taken[p] = true
		}
	}
	var parts []part
	for _, i := range a.Interfaces {
		var v desired.Values
		for _, subnet := range c.externals.SubnetsOf(i.Network) {
			gateway := gatewayTo(i, subnet)
			if !gateway.IsValid() || taken[subnet] {
				continue
			}
			taken[subnet] = true
			linkOf(a, i).LinuxRoute(&v, subnet, gateway, netip.Addr{})
		}
		parts = append(parts, part{[]string{i.Name}, v})
	}
	return parts
}

// gatewayTo returns the gateway of an interface to a subnet; not valid if no route is needed, or the interface has no
// network route.
func gatewayTo(i pod.Interface, subnet netip.Prefix) netip.Addr {
	at := slices.IndexFunc(i.Gateways, func(g netip.Addr) bool { return g.Is4() == subnet.Addr().Is4() })
	byDefault := slices.ContainsFunc(i.Routes, func(r pod.Route) bool {
		return r.Destination == desired.DefaultOf(netaddr.FamilyOf(subnet.Addr()))
	})
	if at < 0 || byDefault || len(i.Routes) == 0 || i.Memif != nil || i.Type == pod.TypeIPAM {
		return netip.Addr{}
	}
	return i.Gateways[at]
}

// destinationsOfInterface returns the destinations of an interface's routes, including the routes that the kernel adds.
func destinationsOfInterface(i pod.Interface) []netip.Prefix {
	var destinations []netip.Prefix
	for _, r := range i.Routes {
		destinations = append(destinations, r.Destination)
	}
	for _, p := range i.Addresses {
		destinations = append(destinations, p.Masked())
	}
	return destinations
}

// containers lists, for each allocation of an attachment, the objects that its memifs share, also with the memifs of
// sibling attachments: the dataplane's socket and the list of the interfaces for the container's program. They are the
// same for each of these attachments.
func (c *connectivity) containers(a *pod.Attachment, siblings siblingsFunc) []part {
	var parts []part
	done := make(map[string]bool)
	for _, i := range a.Interfaces {
		if i.Memif == nil || done[i.Memif.Allocation] || c.secretOf(i.Memif.Allocation) == "" {
			continue
		}
		done[i.Memif.Allocation] = true
		members := membersOf(append(siblings(a.Key, a.Netns), a), i.Memif.Allocation)
		names := namesOf(membersOf([]*pod.Attachment{a}, i.Memif.Allocation))
		parts = append(parts, part{names, containerValues(members)})
	}
	return parts
}

// containerValues lists the objects that the memifs of one allocation share. The dataplane serves a socket unless all
// memifs are direct.
func containerValues(members []member) desired.Values {
	var v desired.Values
	m := members[0].Memif
	directory := directoryOf(m)
	served := slices.IndexFunc(members, func(m member) bool { return !m.Memif.IsDirect() })
	if served >= 0 {
		v.Add(wire.MemifSocketKey(m.Allocation), wire.MemifSocket{
			ID:        m.Socket,
			Path:      m.SocketPath,
			Directory: wire.FileKey(directory),
		})
		v.Add(wire.FileKey(m.SocketPath), socketFile(m, wire.InterfaceKey(members[served].Object)))
	}
	list := wire.File{
		Type:    wire.RegularFile,
		Mode:    0o440,
		UID:     m.UID,
		GID:     m.GID,
		On:      wire.FileKey(directory),
		Content: interfacesFile(members),
	}
	if m.GID == pod.UnknownGroup {
		list.Mode = 0o444
		list.GID = 0
	}
	v.Add(wire.FileKey(path.Join(directory, listName)), list)
	return v
}

// socketFile lets the users of a memif connect to a socket that the object with the key on makes.
func socketFile(m *pod.Memif, on string) wire.File {
	if m.GID == pod.UnknownGroup {
		return wire.File{Type: wire.Socket, Mode: 0o666, UID: m.UID, On: on}
	}
	return wire.File{Type: wire.Socket, Mode: 0o660, UID: m.UID, GID: m.GID, On: on}
}

// directoryOf returns the directory of a memif's allocation.
func directoryOf(m *pod.Memif) string { return path.Dir(m.SocketPath) }

// secretOf returns the secret of an allocation; "" if there is no such allocation.
func (c *connectivity) secretOf(allocation string) secret.Text {
	if c.secret == nil {
		return ""
	}
	return c.secret(allocation)
}

// linkOf returns the link of an interface, without the properties that its record does not have.
func linkOf(a *pod.Attachment, i pod.Interface) desired.Link {
	l := desired.Link{
		Kind:   i.Type,
		Object: i.Object,
		LinuxPlace: desired.LinuxPlace{
			Namespace: a.Netns.Path,
			Name:      i.Name,
			Alias:     desired.AliasOf(a.Key, i.Name),
		},
		Ethernet: desired.Ethernet{
			MAC:      desired.MACOf(i.Object, desired.DataplaneEnd),
			PeerMAC:  desired.MACOf(i.Object, desired.LinuxEnd),
			MTU:      i.MTU,
			RxQueues: i.RxQueues,
			TxQueues: i.TxQueues,
		},
		Addresses: i.Addresses,
		Restrictions: desired.Restrictions{
			AntiSpoofed: i.AntiSpoof || i.Network == "" && i.Name == a.Key.IfName,
		},
		Memif: i.Memif,
	}
	if !i.MAC.IsZero() { // as requested
		l.PeerMAC = i.MAC
	}
	return l
}
