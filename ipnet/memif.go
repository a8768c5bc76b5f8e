package ipnet

import (
	"cmp"
	"path"
	"slices"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

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
