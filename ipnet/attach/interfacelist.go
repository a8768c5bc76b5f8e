package attach

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"

	"github.com/weftnet/weft/internal/netaddr"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
)

// interfaceList is the file interfaces.json, from which a program in a container learns its memifs.
type interfaceList struct {
	Version    int           `json:"version"`
	Interfaces []listedMemif `json:"interfaces"`
}

// listedMemif is a memif as the pod's program sees it. The order of the fields is the order in the file.
type listedMemif struct {
	Name    string `json:"name"`
	ID      uint32 `json:"id"`
	Network string `json:"network"`
	Role    string `json:"role"`
	// Socket of a direct memif: a file in the same directory, or "@" and the name that the server listens on.
	Socket string `json:"socket,omitempty"`
	Mode   string `json:"mode"`
	MAC    string `json:"mac"`
	MTU    int    `json:"mtu"`
	listedAddresses
	listedRings
}

// listedAddresses are the addresses and routes that the program uses.
type listedAddresses struct {
	Addresses  []netip.Prefix `json:"addresses,omitempty"`
	Gateways   []netip.Addr   `json:"gateways,omitempty"` // of Addresses, in the same order
	GatewayMAC string         `json:"gatewayMAC,omitempty"`
	Routes     []pod.Route    `json:"routes,omitempty"`
}

// listedRings are the sizes and numbers of rings that the program offers.
type listedRings struct {
	RingSize   int `json:"ringSize"`
	BufferSize int `json:"bufferSize"`
	RxQueues   int `json:"rxQueues"`
	TxQueues   int `json:"txQueues"`
}

// interfacesFile returns the content of interfaces.json. members are in the order of their ids.
func interfacesFile(members []member) string {
	list := interfaceList{Version: 1}
	for _, i := range members {
		m := i.Memif
		entry := listedMemif{
			Name:            i.Name,
			ID:              m.ID,
			Network:         cmp.Or(i.Network, pod.DefaultNetwork),
			Role:            "client",
			Mode:            m.Mode,
			MAC:             i.MAC.String(),
			MTU:             i.MTU,
			listedAddresses: listedAddresses{Addresses: i.Addresses, Gateways: i.Gateways, Routes: i.Routes},
			listedRings: listedRings{
				RingSize:   m.RingSize,
				BufferSize: m.BufferSize,
				RxQueues:   m.RxQueues,
				TxQueues:   m.TxQueues,
			},
		}
		switch m.Role {
		case pod.RoleClient:
			entry.Socket = path.Base(m.DirectSocket())
		case pod.RoleServer:
			entry.Role = m.Role
			entry.Socket = i.ServerSocket()
		}
		if l := linkOf(i.of, i.Interface); l.HasMACs() && len(i.Routes) > 0 {
			entry.GatewayMAC = l.MAC.String()
		}
		list.Interfaces = append(list.Interfaces, entry)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		panic(err) //nolint:forbidigo // impossible: all of it is plain data
	}
	return string(text) + "\n"
}

// namesOf lists the names of memifs.
func namesOf(members []member) []string {
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	return names
}

// member is a memif of an allocation, with its attachment.
type member struct {
	pod.Interface
	of *pod.Attachment
}

// membersOf lists the memifs of an allocation, in the order of their ids.
func membersOf(attachments []*pod.Attachment, allocation string) []member {
	var members []member
	for _, o := range attachments {
		for _, i := range o.Interfaces {
			if i.Memif != nil && i.Memif.Allocation == allocation {
				members = append(members, member{i, o})
			}
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.Memif.ID, b.Memif.ID) })
	return members
}

// FoundMemif finds a memif, by its name in the dataplane, in interfaces.json of its container. Labels and Neighbours
// are not in the file.
func FoundMemif(object string, a pod.Allocation, list []byte) (Found, error) {
	f := Found{Type: pod.TypeMemif, Object: object, Pod: a.Pod, PodEnd: PodEnd{Netns: a.Netns}}
	var read interfaceList
	if err := json.Unmarshal(list, &read); err != nil {
		return f, fmt.Errorf("list of the memifs of allocation %s: %w", a.ID, err)
	}
	for _, m := range read.Interfaces {
		if desired.ObjectName(a.Attachment, m.Name) != object {
			continue
		}
		f.Name = m.Name
		f.Alias = desired.AliasOf(a.Attachment, m.Name)
		f.MTU = m.MTU
		f.Memif = m.memif(a)
		f.Addresses = m.Addresses
		var err error
		if f.MAC, err = netaddr.ParseMAC(m.MAC); err != nil {
			return f, fmt.Errorf("list of the memifs of allocation %s: interface %s: %w", a.ID, m.Name, err)
		}
		return f, nil
	}
	return f, fmt.Errorf("list of the memifs of allocation %s does not contain %s", a.ID, object)
}

// memif is the inverse of an entry of interfacesFile.
func (m listedMemif) memif(a pod.Allocation) *pod.Memif {
	return &pod.Memif{
		Container: a.Container, Allocation: a.ID, Socket: a.Socket, SocketPath: a.SocketPath(), ID: m.ID, Mode: m.Mode,
		RingSize:   m.RingSize,
		BufferSize: m.BufferSize,
		RxQueues:   m.RxQueues,
		TxQueues:   m.TxQueues,
		UID:        a.UID,
		GID:        a.GID,
	}
}

// ListPath returns the path of interfaces.json of an allocation.
func ListPath(a pod.Allocation) string { return path.Join(a.Directory, listName) }

// listName is the name of interfaceList in the directory of an allocation.
const listName = "interfaces.json"
