package ipnet

import (
	"cmp"
	"encoding/json"
	"net/netip"

	"github.com/weftnet/weft/pod"
)

// interfaceList is the file interfaces.json: what a program in a container needs to know of its memifs.
type interfaceList struct {
	Version    int           `json:"version"`
	Interfaces []listedMemif `json:"interfaces"`
}

// listedMemif is a memif as the pod's program sees it.
type listedMemif struct {
	Name       string         `json:"name"`
	ID         uint32         `json:"id"`
	Network    string         `json:"network"`
	Role       string         `json:"role"`
	Mode       string         `json:"mode"`
	MAC        string         `json:"mac"`
	MTU        int            `json:"mtu"`
	Addresses  []netip.Prefix `json:"addresses,omitempty"`
	Gateways   []netip.Addr   `json:"gateways,omitempty"` // of Addresses, in the same order
	GatewayMAC string         `json:"gatewayMAC,omitempty"`
	Routes     []pod.Route    `json:"routes,omitempty"`
	RingSize   int            `json:"ringSize"`
	BufferSize int            `json:"bufferSize"`
	RxQueues   int            `json:"rxQueues"`
	TxQueues   int            `json:"txQueues"`
}

// interfacesFile lists the memifs of an allocation, which are in the order of their ids.
func interfacesFile(members []member) string {
	list := interfaceList{Version: 1}
	for _, i := range members {
		m := i.Memif
		entry := listedMemif{
			Name: i.Name, ID: m.ID, Network: cmp.Or(i.Network, pod.DefaultNetwork), Role: "client", Mode: m.Mode, MAC: i.MAC, MTU: i.MTU,
			Addresses: i.Addresses, Gateways: i.Gateways, Routes: i.Routes,
			RingSize: m.RingSize, BufferSize: m.BufferSize, RxQueues: m.RxQueues, TxQueues: m.TxQueues,
		}
		if l := linkOf(i.of, i.Interface); l.hasMACs() && len(i.Routes) > 0 {
			entry.GatewayMAC = l.mac.String()
		}
		list.Interfaces = append(list.Interfaces, entry)
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		panic(err) //nolint:forbidigo // impossible: all of it is plain data
	}
	return string(text) + "\n"
}
