package desired

import (
	"net/netip"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/policy"
	"github.com/weftnet/weft/wire"
)

// Link connects the dataplane with the network namespace of a pod or of the node.
type Link struct {
	Kind   string // pod.TypeTap, pod.TypeVeth or pod.TypeMemif
	Object string // name in the dataplane
	LinuxPlace
	Ethernet
	Addresses []netip.Prefix // of the Linux end
	Forwards  bool           // its namespace forwards packets of the families of Addresses
	Restrictions
	Memif  *pod.Memif // of type memif
	Secret secret.Text
}

// LinuxPlace is where the Linux end of a link is.
type LinuxPlace struct {
	Namespace string // path; "" = the node's
	Name      string // in the namespace
	Alias     string
}

// Ethernet are the properties of both ends of a link.
type Ethernet struct {
	MAC        netaddr.MAC // of the dataplane's end
	PeerMAC    netaddr.MAC // of the Linux end
	MTU        int
	MaxSegment int  // of a veth, bytes; 0 = the kernel's
	GSO        bool // the dataplane segments long packets in tunnels before it sends them by the link

	RxQueues, TxQueues int // of the Linux end; of a tap they are the same; 0 is one
}

// Restrictions say which packets of a link the dataplane drops.
type Restrictions struct {
	AntiSpoofed bool         // it forwards no packet before it has the permitted sources
	Rules       policy.Lists // of policies; none: the link permits all packets
	Guarded     bool         // packets that only routers and DHCP servers send
}

// LinuxKey is the key of the object that makes the Linux end.
func (l Link) LinuxKey() string {
	if l.Kind == pod.TypeVeth {
		return wire.VethKey(l.Object)
	}
	return wire.TapPeerKey(l.Object)
}

// LinuxEnd is the key of the object that must exist before neighbours on a layer 2 network reach the link; "" for other
// links. The dataplane sets a tap up in the pod when it creates the tap, and the kernel there accepts router
// advertisements until the object disables them.
func (l Link) LinuxEnd() string {
	if l.Kind == pod.TypeTap {
		return l.LinuxKey()
	}
	return ""
}

// Ends lists the values of both ends of a tap or veth of the node, and of the addresses of the Linux end.
func (l Link) Ends() Values {
	var v Values
	if l.Kind == pod.TypeVeth {
		v.Add(l.DataplaneVeth())
		v.Add(l.LinuxVeth())
	} else {
		v.Add(l.DataplaneTap())
		v.Add(l.LinuxTap())
	}
	v.Add(l.LinuxHardening())
	v = append(v, l.LinuxSysctls()...)
	return append(v, l.LinuxAddresses()...)
}

// DataplaneTap is the dataplane's end of a tap. The dataplane creates both ends.
func (l Link) DataplaneTap() (string, wire.Interface) {
	return wire.InterfaceKey(l.Object), wire.Interface{
		Type: wire.TypeTap, MAC: l.MAC, MTU: l.MTU, Up: true, GSO: l.GSO,
		Tap: wire.Tap{Namespace: l.Namespace, Name: l.Name, MAC: l.PeerMAC, MTU: l.MTU, Queues: l.RxQueues},
	}
}

// LinuxTap is the Linux end of a tap, which the object configures.
func (l Link) LinuxTap() (string, wire.TapPeer) {
	return l.LinuxKey(), wire.TapPeer{
		Interface: l.Object, Namespace: l.Namespace, Name: l.Name, MAC: l.PeerMAC, MTU: l.MTU, Alias: l.Alias, Up: true,
	}
}

// DataplaneVeth is the interface by which the dataplane reads and writes the node's end of a veth.
func (l Link) DataplaneVeth() (string, wire.Interface) {
	return wire.InterfaceKey(l.Object), wire.Interface{
		Type: wire.TypeAFPacket, MAC: l.MAC, MTU: l.MTU, Up: true, GSO: l.GSO,
		AFPacket: wire.AFPacket{
			Link: HostName(l.Object), On: l.LinuxKey(), RxQueues: l.TxQueues, TxQueues: l.RxQueues,
		},
	}
}

// LinuxVeth is a veth, which the kernel creates: the end in the namespace of the link, and the node's end.
func (l Link) LinuxVeth() (string, wire.Veth) {
	return l.LinuxKey(), wire.Veth{
		Namespace: l.Namespace, Name: l.Name, MAC: l.PeerMAC,
		HostName: HostName(l.Object), HostMAC: MACOf(l.Object, HostEnd),
		MTU: l.MTU, Alias: l.Alias, Up: true, RxQueues: l.RxQueues, TxQueues: l.TxQueues, MaxSegment: l.MaxSegment,
	}
}

// DataplaneMemif is the end of a memif that the dataplane serves. The other end is the pod's program.
func (l Link) DataplaneMemif() (string, wire.Interface) {
	return wire.InterfaceKey(l.Object), wire.Interface{
		Type: wire.TypeMemif, MAC: l.MAC, MTU: l.MTU, Up: true, Memif: MemifOf(l.Memif, l.Secret),
	}
}

// LinuxHardening hardens the Linux end.
func (l Link) LinuxHardening() (string, wire.Hardening) {
	return wire.HardeningKey(l.LinuxKey()), wire.Hardening{On: l.LinuxKey(), Namespace: l.Namespace, Link: l.Name}
}

// LinuxSysctls lists the sysctls of the Linux end's namespace.
func (l Link) LinuxSysctls() Values {
	var v Values
	if HasFamily(l.Addresses, netaddr.IP6) {
		l.Setting(&v, "net/ipv6/conf/"+l.Name+"/accept_dad", "0") // addresses are known to be unique
	}
	if l.Forwards {
		for _, f := range FamiliesOf(l.Addresses) {
			l.Setting(&v, Forwarding[f], "1")
		}
	}
	return v
}

// LinuxAddresses lists the addresses of the Linux end.
func (l Link) LinuxAddresses() Values {
	var v Values
	for _, p := range l.Addresses {
		v.Add(wire.LinuxAddressKey(l.LinuxKey(), p), wire.LinuxAddress{
			On: l.LinuxKey(), Namespace: l.Namespace, Link: l.Name, Prefix: p,
		})
	}
	return v
}

// Forward adds the settings with which the kernel at the Linux end forwards packets of a family from the link.
func (l Link) Forward(v *Values, f netaddr.Family) {
	l.Setting(v, Forwarding[f], "1")
	l.Setting(v, ForwardingFrom(l.Name, f), "1")
}

// Setting adds a sysctl of the Linux end's namespace.
func (l Link) Setting(v *Values, name, value string) {
	v.Add(wire.SysctlKey(l.LinuxKey(), name), wire.Sysctl{
		On:        l.LinuxKey(),
		Namespace: l.Namespace,
		Name:      name,
		Value:     value,
	})
}

// LinuxNeighbour adds a static neighbour of the Linux end with the MAC of the dataplane's end.
func (l Link) LinuxNeighbour(v *Values, a netip.Addr) {
	v.Add(wire.LinuxNeighbourKey(l.LinuxKey(), a), wire.LinuxNeighbour{
		On: l.LinuxKey(), Namespace: l.Namespace, Link: l.Name, Address: a, MAC: l.MAC,
	})
}

// LinuxRoute adds a route through the Linux end. Without a valid gateway the destination is on the link.
func (l Link) LinuxRoute(v *Values, destination netip.Prefix, gateway, source netip.Addr) {
	route := l.linuxRoute(destination, gateway)
	route.Source = source
	v.Add(route.Key(), route)
}

// LinuxPodRoute adds a route of a pod through the Linux end.
func (l Link) LinuxPodRoute(v *Values, r pod.Route) {
	route := l.linuxRoute(r.Destination, r.Gateway)
	route.Metric = r.Metric
	v.Add(route.Key(), route)
}

func (l Link) linuxRoute(destination netip.Prefix, gateway netip.Addr) wire.LinuxRoute {
	return wire.LinuxRoute{
		On:          l.LinuxKey(),
		Namespace:   l.Namespace,
		Link:        l.Name,
		Destination: destination,
		Gateway:     gateway,
	}
}

// MemifOf returns a memif from the side of the dataplane: its receive queues are the pod's transmit queues.
func MemifOf(m *pod.Memif, s secret.Text) wire.Memif {
	return wire.Memif{
		Socket: m.Allocation, ID: m.ID, Mode: wire.MemifMode(m.Mode), Secret: s,
		RingSize: m.RingSize, BufferSize: m.BufferSize, RxQueues: m.TxQueues, TxQueues: m.RxQueues,
	}
}

// HasMACs reports whether packets on the link begin with an Ethernet header.
func (l Link) HasMACs() bool { return l.Memif == nil || l.Memif.Mode != pod.MemifIP }
