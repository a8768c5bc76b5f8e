package ipnet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// link is a way between the dataplane and a namespace, a pod's or the node's.
type link struct {
	kind      string // pod.TypeTap, pod.TypeVeth or pod.TypeMemif
	object    string // name in the dataplane
	namespace string // path; "" = the node's
	name      string // in the namespace
	alias     string
	mac       wire.MAC // of the dataplane's end
	peerMAC   wire.MAC // of the Linux end
	mtu       int

	maxSegment int // of a veth, bytes; 0 = the kernel's

	addresses []netip.Prefix // of the Linux end
	judged    bool           // anti-spoofed: nothing is forwarded before the dataplane has the permitted sources
	gso       bool           // the dataplane segments long packets in tunnels before it sends them by the link
	forwards  bool           // its namespace is to be a router for the families of addresses

	rxQueues, txQueues int // of the Linux end; of a tap they are the same; 0 is one

	memif  *pod.Memif // of type memif
	secret secret.Text
}

// on is the key of the object that makes the Linux end.
func (l link) on() string {
	if l.kind == pod.TypeVeth {
		return wire.VethKey(l.object)
	}
	return wire.TapPeerKey(l.object)
}

// linuxEnd is the object that must be there before neighbours on a layer 2 network reach the link. The dataplane sets a tap up in
// the pod when it makes the tap, and the kernel there follows router advertisements until the object has told it not to.
func (l link) linuxEnd() string {
	if l.kind == pod.TypeTap {
		return l.on()
	}
	return ""
}

// ends are both ends, up, and the addresses of the Linux end.
func (l link) ends() values {
	var v values
	switch l.kind {
	case pod.TypeMemif:
		return l.memifEnd()
	case pod.TypeVeth:
		v = l.veth()
	default:
		v = l.tap()
	}
	v.add(wire.HardeningKey(l.on()), wire.Hardening{On: l.on(), Namespace: l.namespace, Link: l.name})
	if hasFamily(l.addresses, wire.IP6) {
		l.setting(&v, "net/ipv6/conf/"+l.name+"/accept_dad", "0") // addresses are known to be unique
	}
	if l.forwards {
		for _, f := range familiesOf(l.addresses) {
			l.setting(&v, forwarding[f], "1")
		}
	}
	for _, p := range l.addresses {
		v.add(wire.LinuxAddressKey(l.on(), p), wire.LinuxAddress{
			On: l.on(), Namespace: l.namespace, Link: l.name, Prefix: p,
		})
	}
	return v
}

// setting is one of the kernel for the Linux end's namespace.
func (l link) setting(v *values, name, value string) {
	v.add(wire.SysctlKey(l.on(), name), wire.Sysctl{On: l.on(), Namespace: l.namespace, Name: name, Value: value})
}

// linuxNeighbour is a neighbour of the Linux end, behind the dataplane's.
func (l link) linuxNeighbour(v *values, a netip.Addr) {
	v.add(wire.LinuxNeighbourKey(l.on(), a), wire.LinuxNeighbour{
		On: l.on(), Namespace: l.namespace, Link: l.name, Address: a, MAC: l.mac,
	})
}

// linuxRoute is a route of the namespace by the Linux end. Without a valid gateway the destination is on the link.
func (l link) linuxRoute(v *values, destination netip.Prefix, gateway, source netip.Addr) {
	v.add(wire.LinuxRouteKey(l.on(), destination), wire.LinuxRoute{
		On: l.on(), Namespace: l.namespace, Link: l.name, Destination: destination, Gateway: gateway, Source: source,
	})
}

func hasFamily(prefixes []netip.Prefix, f wire.Family) bool {
	for _, p := range prefixes {
		if wire.FamilyOf(p.Addr()) == f {
			return true
		}
	}
	return false
}

// tap is both ends of a link of type tap: the dataplane makes them.
func (l link) tap() values {
	var v values
	v.add(wire.InterfaceKey(l.object), wire.Interface{
		Type: wire.TypeTap, MAC: l.mac, MTU: l.mtu, Up: true, GSO: l.gso,
		Tap: wire.Tap{Namespace: l.namespace, Name: l.name, MAC: l.peerMAC, MTU: l.mtu, Queues: l.rxQueues},
	})
	v.add(l.on(), wire.TapPeer{
		Interface: l.object, Namespace: l.namespace, Name: l.name, MAC: l.peerMAC, MTU: l.mtu, Alias: l.alias, Up: true,
	})
	return v
}

// veth is both ends of a link of type veth: the kernel makes them, the dataplane reads and writes the node's.
func (l link) veth() values {
	var v values
	host := hostName(l.object)
	v.add(wire.InterfaceKey(l.object), wire.Interface{
		Type: wire.TypeAFPacket, MAC: l.mac, MTU: l.mtu, Up: true, GSO: l.gso,
		AFPacket: wire.AFPacket{Link: host, On: l.on(), RxQueues: l.txQueues, TxQueues: l.rxQueues},
	})
	v.add(l.on(), wire.Veth{
		Namespace: l.namespace, Name: l.name, MAC: l.peerMAC, HostName: host, HostMAC: macOf(l.object, hostEnd),
		MTU: l.mtu, Alias: l.alias, Up: true, RxQueues: l.rxQueues, TxQueues: l.txQueues, MaxSegment: l.maxSegment,
	})
	return v
}

// memifEnd is a link of type memif: the dataplane serves it, the pod's own program is the other end.
func (l link) memifEnd() (v values) {
	v.add(wire.InterfaceKey(l.object), wire.Interface{
		Type: wire.TypeMemif, MAC: l.mac, MTU: l.mtu, Up: true, Memif: served(l.memif, l.secret),
	})
	return v
}

// served is a memif as the dataplane has it, which reads what the pod writes.
func served(m *pod.Memif, s secret.Text) wire.Memif {
	return wire.Memif{
		Socket: m.Allocation, ID: m.ID, Mode: wire.MemifMode(m.Mode), Secret: s,
		RingSize: m.RingSize, BufferSize: m.BufferSize, RxQueues: m.TxQueues, TxQueues: m.RxQueues,
	}
}

// isLinux reports whether the pod's end is a link of the kernel's.
func (l link) isLinux() bool { return l.kind != pod.TypeMemif }

// hasMACs reports whether packets on the link begin with an Ethernet header.
func (l link) hasMACs() bool { return l.memif == nil || l.memif.Mode != pod.MemifIP }

// secretOf is the secret of an allocation; "" if there is no such allocation.
func (n *Network) secretOf(allocation string) secret.Text {
	if n.config.Secret == nil {
		return ""
	}
	return n.config.Secret(allocation)
}

// deviceValues are what the memifs of each container of an attachment share, with those too that other attachments of the
// sandbox have: the dataplane's socket, and the list by which the container's program knows its interfaces. They are the
// same for all of these attachments.
func (n *Network) deviceValues(a *pod.Attachment) values {
	var v values
	done := make(map[string]bool)
	for _, i := range a.Interfaces {
		if i.Memif == nil || done[i.Memif.Allocation] || n.secretOf(i.Memif.Allocation) == "" {
			continue
		}
		done[i.Memif.Allocation] = true
		members := n.membersOf(a, i.Memif.Allocation)
		m, directory := members[0].Memif, path.Dir(i.Memif.SocketPath)
		v.add(wire.MemifSocketKey(m.Allocation), wire.MemifSocket{ID: m.Socket, Path: m.SocketPath, Directory: wire.FileKey(directory)})
		socket := wire.File{Type: wire.Socket, Mode: 0o660, UID: m.UID, GID: m.GID, On: wire.InterfaceKey(members[0].Object)}
		list := wire.File{Type: wire.RegularFile, Mode: 0o440, UID: m.UID, GID: m.GID, On: wire.FileKey(directory), Content: interfacesFile(members)}
		if m.GID == pod.UnknownGroup {
			socket.Mode, socket.GID, list.Mode, list.GID = 0o666, 0, 0o444, 0
		}
		v.add(wire.FileKey(m.SocketPath), socket)
		v.add(wire.FileKey(path.Join(directory, listName)), list)
	}
	return v
}

// member is a memif of an allocation, with what it is of.
type member struct {
	pod.Interface
	of *pod.Attachment
}

// membersOf are the memifs of an allocation that an attachment and those beside it have, in the order of their ids. An
// attachment that is displaced shares nothing any more.
func (n *Network) membersOf(a *pod.Attachment, allocation string) []member {
	var members []member
	for _, o := range append(n.besides(a.Key, a.Netns), a) {
		for _, i := range o.Interfaces {
			if i.Memif != nil && i.Memif.Allocation == allocation {
				members = append(members, member{i, o})
			}
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.Memif.ID, b.Memif.ID) })
	return members
}

// FoundMemif is the memif of that name in the dataplane as the list of its container's memifs has it, interfaces.json,
// which ConnectPod once desired. Labels and Neighbours are the dataplane's to tell.
func FoundMemif(object string, a pod.Allocation, list []byte) (Found, error) {
	f := Found{Type: pod.TypeMemif, Object: object, Netns: a.Netns, Pod: a.Pod}
	var read interfaceList
	if err := json.Unmarshal(list, &read); err != nil {
		return f, fmt.Errorf("list of the memifs of allocation %s: %w", a.ID, err)
	}
	for _, m := range read.Interfaces {
		if objectName(a.Attachment, m.Name) != object {
			continue
		}
		f.Name, f.Alias, f.MTU = m.Name, aliasOf(a.Attachment, m.Name), m.MTU
		f.Memif = m.memif(a)
		f.Addresses = m.Addresses
		var err error
		if f.MAC, err = wire.ParseMAC(m.MAC); err != nil {
			return f, fmt.Errorf("list of the memifs of allocation %s: interface %s: %w", a.ID, m.Name, err)
		}
		return f, nil
	}
	return f, fmt.Errorf("list of the memifs of allocation %s has none that is %s", a.ID, object)
}

// memif is the inverse of what interfacesFile lists.
func (m listedMemif) memif(a pod.Allocation) *pod.Memif {
	return &pod.Memif{
		Container: a.Container, Allocation: a.ID, Socket: a.Socket, SocketPath: a.SocketPath(), ID: m.ID, Mode: m.Mode,
		RingSize: m.RingSize, BufferSize: m.BufferSize, RxQueues: m.RxQueues, TxQueues: m.TxQueues, UID: a.UID, GID: a.GID,
	}
}

// MemifAsMade is what the dataplane made the memif with, as far as that cannot be changed later.
func (n *Network) MemifAsMade(f Found) wire.Interface {
	return wire.Interface{Type: wire.TypeMemif, Memif: served(f.Memif, n.secretOf(f.Memif.Allocation))}
}

// ListPath is where the list of an allocation's memifs is.
func ListPath(a pod.Allocation) string { return path.Join(a.Directory, listName) }

// listName is that of the list in an allocation's directory.
const listName = "interfaces.json"
