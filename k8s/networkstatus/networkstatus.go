// Package networkstatus formats and parses the annotation that lists the interfaces of a pod.
package networkstatus

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/weftnet/weft/pod"
)

// Annotation lists the interfaces of a pod: multi-net specification of the Network Plumbing Working Group, version 1.3,
// section 4.1.3.
const Annotation = "k8s.v1.cni.cncf.io/network-status"

// networkStatus is one interface in the annotation.
type networkStatus struct {
	Name       string       `json:"name"` // of the NetworkAttachmentDefinition, the CNI network, or the network of Weft
	Interface  string       `json:"interface"`
	IPs        []netip.Addr `json:"ips,omitempty"`
	MAC        string       `json:"mac,omitempty"`
	MTU        int          `json:"mtu,omitempty"`
	Default    bool         `json:"default,omitempty"`
	DNS        pod.DNS      `json:"dns"` // an empty object if there is none, like other implementations
	DeviceInfo *deviceInfo  `json:"device-info,omitempty"`
	Gateways   []netip.Addr `json:"gateway,omitempty"`
}

// deviceInfo is a device: device information specification 1.1.0.
type deviceInfo struct {
	Type    string     `json:"type"`
	Version string     `json:"version"`
	Memif   *memifInfo `json:"memif,omitempty"`
}

type memifInfo struct {
	Role string `json:"role"` // of the pod's end
	Path string `json:"path"` // of the socket, on the node
	Mode string `json:"mode"`
}

// runtimesName is the interface that container runtimes of kubelet request.
const runtimesName = "eth0"

// Of returns the annotation of a pod with these attachments; false: Weft must not write it. If another plugin calls
// Weft for a network, that plugin writes it. Weft does not write it for a pod without an interface of Weft.
func Of(attachments []pod.Attachment) (text string, ours bool) {
	var main *pod.Attachment
	for i := range attachments {
		a := &attachments[i]
		switch {
		case a.Mode == pod.ModeDelegate, a.Mode == "" && a.Key.IfName != runtimesName:
			return "", false
		case a.Mode == pod.ModeIPAM, len(a.Interfaces) == 0:
		case main == nil || main.Created.Before(a.Created):
			main = a
		}
	}
	if main == nil {
		return "", false
	}
	raw, err := json.MarshalIndent(statusesOf(main), "", "    ")
	return string(raw), err == nil
}

// statusesOf lists an attachment's interfaces, the pod's main one first. Of another plugin's interface only the name is
// known.
func statusesOf(a *pod.Attachment) []networkStatus {
	var list []networkStatus
	if a.Mode == pod.ModeChained {
		list = append(list, networkStatus{Name: a.Key.Network, Interface: a.Key.IfName, Default: true})
	}
	for i := range a.Interfaces {
		in := &a.Interfaces[i]
		s := networkStatus{
			Name:       cmp.Or(in.Definition, in.Network, pod.DefaultNetwork),
			Interface:  in.Name,
			MAC:        in.MAC.String(),
			MTU:        in.MTU,
			DeviceInfo: deviceInfoOf(in),
			DNS:        in.DNS,
		}
		if in.Name == a.Key.IfName {
			s.Name = a.Key.Network
			s.Default = true
			s.DNS = in.DNS.Or(a.Delegation.DNS)
		}
		for _, p := range in.Addresses {
			s.IPs = append(s.IPs, p.Addr())
		}
		for _, g := range in.Gateways {
			if g.IsValid() {
				s.Gateways = append(s.Gateways, g)
			}
		}
		list = append(list, s)
	}
	return list
}

// deviceInfoOf describes a memif; nil for other types. The container connects, as slave, unless it is the server of a
// direct network.
func deviceInfoOf(in *pod.Interface) *deviceInfo {
	if in.Memif == nil {
		return nil
	}
	info := &memifInfo{Role: "slave", Path: in.Memif.SocketPath, Mode: in.Memif.Mode}
	switch in.Memif.Role {
	case pod.RoleClient:
		info.Path = in.Memif.DirectSocket()
	case pod.RoleServer:
		info.Role = "master"
		info.Path = in.ServerSocket()
	}
	return &deviceInfo{Type: pod.TypeMemif, Version: "1.1.0", Memif: info}
}

// ErrNone means that a pod does not have the annotation yet.
var ErrNone = errors.New("no component has written its annotation " + Annotation)

// AddressesOn returns the addresses of an interface in the annotation.
func AddressesOn(annotations map[string]string, name string) ([]netip.Addr, error) {
	text, has := annotations[Annotation]
	if !has {
		return nil, ErrNone
	}
	var list []struct {
		Interface string       `json:"interface"`
		IPs       []netip.Addr `json:"ips"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("its annotation %s: %w", Annotation, err)
	}
	for _, s := range list {
		if s.Interface == name {
			return s.IPs, nil
		}
	}
	return nil, fmt.Errorf("it has no interface %s", name)
}
