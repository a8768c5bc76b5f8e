package ipnet

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

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
