package attach

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/weftnet/weft/internal/secret"
	"github.com/weftnet/weft/ipnet/desired"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/wire"
)

// MemifLimits are the most that a pod can ask for of a memif.
type MemifLimits struct {
	RingSize   int // slots; default 4096
	BufferSize int // bytes; default 16384
	Queues     int // in each direction; default 4
}

// defaultQueues is the number of a memif's queues in each direction.
const defaultQueues = 1

func (l MemifLimits) withDefaults() MemifLimits {
	return MemifLimits{
		RingSize: cmp.Or(l.RingSize, 4096), BufferSize: cmp.Or(l.BufferSize, 16384), Queues: cmp.Or(l.Queues, 4),
	}
}

// grantMemifs assigns each requested memif to a container: the container of the requested device, the container that the options
// name, or the first container that has a device left, in this order. A memif of a claim has the claim's device. The memifs of a container
// are numbered from 1: those of other attachments of the sandbox first, then in the order of the annotation. That of a claim has number 1.
func (rq *request) grantMemifs(specs []spec) error {
	others := memifsOf(rq.siblings(rq.ev.Key, rq.ev.Netns))
	left, ids := make([]int, len(rq.ev.Grants)), make(map[string]uint32)
	for g := range rq.ev.Grants {
		held := others[rq.ev.Grants[g].Allocation.ID]
		left[g] = len(rq.ev.Grants[g].Allocation.Devices) - len(held)
		for _, i := range held {
			ids[holderOf(&rq.ev.Grants[g])] = max(ids[holderOf(&rq.ev.Grants[g])], i.Memif.ID)
		}
	}
	if err := distinctVariables(rq.ev, specs); err != nil {
		return err
	}
	chosen, err := chooseGrants(rq.ev, specs, left)
	if err != nil {
		return err
	}
	for at := range specs {
		if g, ok := chosen[at]; ok {
			grant := &rq.ev.Grants[g]
			ids[holderOf(grant)]++
			specs[at].memif = specs[at].memifOf(grant, ids[holderOf(grant)])
		}
	}
	return sameOwner(rq.ev, specs, others)
}

// distinctVariables rejects memifs of claims whose sockets have the same environment variable: a container would find one of them only.
func distinctVariables(ev *pod.AddPod, specs []spec) error {
	named := make(map[string]string)
	for _, s := range specs {
		if s.allocation == "" {
			continue
		}
		variable := pod.SocketVariable(s.name)
		if other, is := named[variable]; is {
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: %s: interfaces %s and %s of claims have the same variable %s in containers; rename one of them",
				ev, s.optionsSource, other, s.name, variable)
		}
		named[variable] = s.name
	}
	return nil
}

// holderOf returns the container of a grant, or the allocation of a claim, which is not of one container.
func holderOf(g *pod.Grant) string { return cmp.Or(g.Container, g.Allocation.ID) }

// chooseGrants assigns a device grant to each requested memif, by the index of its spec; left counts the free devices of each grant.
func chooseGrants(ev *pod.AddPod, specs []spec, left []int) (map[int]int, error) {
	chosen := make(map[int]int)
	if at, g, err := byDevice(ev, specs, left); err != nil {
		return nil, err
	} else if g >= 0 {
		left[g]--
		chosen[at] = g
	}
	for at, s := range specs {
		if s.allocation == "" {
			continue
		}
		g := slices.IndexFunc(ev.Grants, func(g pod.Grant) bool { return g.Allocation.ID == s.allocation })
		if g < 0 || left[g] <= 0 {
			return nil, pod.Errorf(pod.CodeDeviceMissing, "%s: %s: interface %s: its device was released; delete the pod and create it again", ev, s.optionsSource, s.name)
		}
		left[g]--
		chosen[at] = g
	}
	for _, named := range []bool{true, false} {
		for at, s := range specs {
			if _, done := chosen[at]; done || s.kind != pod.TypeMemif || (s.options.Container != "") != named {
				continue
			}
			g := firstWithRoom(ev.Grants, left, s.options.Container)
			if g < 0 {
				return nil, deviceMissing(ev, specs, s)
			}
			left[g]--
			chosen[at] = g
		}
	}
	return chosen, nil
}

// byDevice finds the grant of the device that the request names for the main interface, if it is a memif; -1 if it names none.
func byDevice(ev *pod.AddPod, specs []spec, left []int) (at, g int, err error) {
	device := ev.Requested.DeviceID
	at = slices.IndexFunc(specs, func(s spec) bool { return s.name == ev.Key.IfName && s.kind == pod.TypeMemif })
	if device == "" || at < 0 {
		return at, -1, nil
	}
	g = slices.IndexFunc(ev.Grants, func(g pod.Grant) bool {
		return g.Allocation.Claim == nil && slices.Contains(g.Allocation.Devices, device)
	})
	c := specs[at].options.Container
	switch {
	case g < 0:
		return at, g, pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: deviceID %q is of no container of the pod; these have a %s: %s",
			ev, specs[at].name, device, pod.Resource, containersOf(ev))
	case c != "" && c != ev.Grants[g].Container:
		return at, g, pod.Errorf(pod.CodeInvalidConfig, "%s: interface %s: deviceID %q is container %s's, and the option container says %s",
			ev, specs[at].name, device, ev.Grants[g].Container, c)
	case left[g] <= 0:
		return at, g, deviceMissing(ev, specs, specs[at])
	}
	return at, g, nil
}

// memifsOf returns the memifs of attachments by allocation.
func memifsOf(attachments []*pod.Attachment) map[string][]pod.Interface {
	memifs := make(map[string][]pod.Interface)
	for _, a := range attachments {
		for _, i := range a.Interfaces {
			if i.Memif != nil {
				memifs[i.Memif.Allocation] = append(memifs[i.Memif.Allocation], i)
			}
		}
	}
	return memifs
}

// firstWithRoom returns the first grant with a free device, of a container unless that is ""; -1 if there is none.
func firstWithRoom(grants []pod.Grant, left []int, container string) int {
	for g := range grants {
		if left[g] > 0 && grants[g].Allocation.Claim == nil && (container == "" || grants[g].Container == container) {
			return g
		}
	}
	return -1
}

// memifOf returns the memif with an id of a container.
func (s spec) memifOf(g *pod.Grant, id uint32) *pod.Memif {
	m := &pod.Memif{
		Container: g.Container, Allocation: g.Allocation.ID, Socket: g.Allocation.Socket, SocketPath: g.Allocation.SocketPath(), ID: id,
		Mode:     cmp.Or(s.options.Mode, pod.MemifEthernet),
		RingSize: cmp.Or(s.options.RingSize, pod.DefaultRingSize), BufferSize: cmp.Or(s.options.BufferSize, pod.DefaultBufferSize),
		RxQueues: cmp.Or(s.rxQueues, defaultQueues), TxQueues: cmp.Or(s.txQueues, defaultQueues),
		GID: g.GID, Role: s.options.Role,
	}
	if s.options.UID != nil {
		m.UID = int(*s.options.UID)
	}
	if s.options.GID != nil {
		m.GID = int(*s.options.GID)
	}
	return m
}

// deviceMissing says which resource a pod lacks, and where.
func deviceMissing(ev *pod.AddPod, specs []spec, s spec) error {
	if ev.ID.IsZero() {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: a memif is counted in the limits of a pod of Kubernetes as %s, and this is no such pod",
			ev, s.name, pod.Resource)
	}
	if c := s.options.Container; c != "" && !slices.ContainsFunc(ev.Grants, func(g pod.Grant) bool { return g.Container == c }) {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: %s", ev, s.name, pod.NoMemifs(c, containersOf(ev)))
	}
	needed, have := 0, 0
	for _, o := range specs {
		if o.kind == pod.TypeMemif && o.allocation == "" && (s.options.Container == "" || o.options.Container == s.options.Container) {
			needed++
		}
	}
	for _, g := range ev.Grants {
		if g.Allocation.Claim == nil && (s.options.Container == "" || g.Container == s.options.Container) {
			have += len(g.Allocation.Devices)
		}
	}
	return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: %s", ev, s.name, pod.FewMemifs(s.options.Container, have, needed))
}

func containersOf(ev *pod.AddPod) string {
	var names []string
	for _, g := range ev.Grants {
		if g.Allocation.Claim == nil {
			names = append(names, g.Container)
		}
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// sameOwner rejects different owners of the memifs of a container, because they share a socket. others are the memifs of sibling
// attachments, by allocation.
func sameOwner(ev *pod.AddPod, specs []spec, others map[string][]pod.Interface) error {
	first := make(map[string]spec)
	for _, held := range others {
		first[sharersOf(held[0].Memif)] = spec{name: held[0].Name, memif: held[0].Memif}
	}
	for _, s := range specs {
		if s.memif == nil {
			continue
		}
		o, shared := first[sharersOf(s.memif)]
		if shared && (o.memif.UID != s.memif.UID || o.memif.GID != s.memif.GID) {
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: annotation %s: interfaces %s and %s of container %s share a socket, so their uid and gid must be the same",
				ev, pod.AnnotationOptions, o.name, s.name, s.memif.Container)
		}
		if !shared {
			first[sharersOf(s.memif)] = s
		}
	}
	return nil
}

// sharersOf returns what shares a socket: the memifs of a container, or one memif of a claim.
func sharersOf(m *pod.Memif) string { return cmp.Or(m.Container, m.Allocation) }

// memifPossible rejects a memif that this node does not allow.
func (rq *request) memifPossible(s spec) error {
	if rq.config.Secret == nil {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: this node has no memifs: devices.memif.count in its configuration is 0", rq.ev, s.name)
	}
	most := rq.config.Memif
	return allowed(rq.ev, s,
		option{"ringSize", s.options.RingSize, most.RingSize}, option{"bufferSize", s.options.BufferSize, most.BufferSize},
		option{"rxQueues", s.rxQueues, most.Queues}, option{"txQueues", s.txQueues, most.Queues},
	)
}

// interfaceList is the file interfaces.json, from which a program in a container learns its memifs.
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
	Socket     string         `json:"socket,omitempty"` // of a direct memif: a file in the same directory, or "@" and the name that the server listens on
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

// interfacesFile returns the content of interfaces.json. members are in the order of their ids.
func interfacesFile(members []member) string {
	list := interfaceList{Version: 1}
	for _, i := range members {
		m := i.Memif
		entry := listedMemif{
			Name: i.Name, ID: m.ID, Network: cmp.Or(i.Network, pod.DefaultNetwork), Role: "client", Mode: m.Mode, MAC: i.MAC, MTU: i.MTU,
			Addresses: i.Addresses, Gateways: i.Gateways, Routes: i.Routes,
			RingSize: m.RingSize, BufferSize: m.BufferSize, RxQueues: m.RxQueues, TxQueues: m.TxQueues,
		}
		switch m.Role {
		case pod.RoleClient:
			entry.Socket = path.Base(m.DirectSocket())
		case pod.RoleServer:
			entry.Role, entry.Socket = m.Role, i.ServerSocket()
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

// secretOf returns the secret of an allocation; "" if there is no such allocation.
func (ps *Pods) secretOf(allocation string) secret.Text {
	if ps.config.Secret == nil {
		return ""
	}
	return ps.config.Secret(allocation)
}

// siblingsFunc lists the other attachments of a sandbox.
type siblingsFunc func(pod.Key, pod.Netns) []*pod.Attachment

// deviceValues lists the values that all memifs of a container share, including those of sibling attachments: the dataplane's socket, and
// the list of the interfaces for the container's program. They are the same for each of these attachments.
func (ps *Pods) deviceValues(a *pod.Attachment, siblings siblingsFunc) desired.Values {
	var v desired.Values
	done := make(map[string]bool)
	for _, i := range a.Interfaces {
		if i.Memif == nil || done[i.Memif.Allocation] || ps.secretOf(i.Memif.Allocation) == "" {
			continue
		}
		done[i.Memif.Allocation] = true
		members := membersOf(append(siblings(a.Key, a.Netns), a), i.Memif.Allocation)
		m, directory := members[0].Memif, directoryOf(i.Memif)
		if at := slices.IndexFunc(members, func(m member) bool { return !m.Memif.IsDirect() }); at >= 0 {
			v.Add(wire.MemifSocketKey(m.Allocation), wire.MemifSocket{ID: m.Socket, Path: m.SocketPath, Directory: wire.FileKey(directory)})
			v.Add(wire.FileKey(m.SocketPath), socketFile(m, wire.InterfaceKey(members[at].Object)))
		}
		list := wire.File{Type: wire.RegularFile, Mode: 0o440, UID: m.UID, GID: m.GID, On: wire.FileKey(directory), Content: interfacesFile(members)}
		if m.GID == pod.UnknownGroup {
			list.Mode, list.GID = 0o444, 0
		}
		v.Add(wire.FileKey(path.Join(directory, listName)), list)
	}
	return v
}

// directoryOf returns the directory of a memif's allocation.
func directoryOf(m *pod.Memif) string { return path.Dir(m.SocketPath) }

// socketFile lets the users of a memif connect to a socket that an object makes.
func socketFile(m *pod.Memif, on string) wire.File {
	if m.GID == pod.UnknownGroup {
		return wire.File{Type: wire.Socket, Mode: 0o666, UID: m.UID, On: on}
	}
	return wire.File{Type: wire.Socket, Mode: 0o660, UID: m.UID, GID: m.GID, On: on}
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

// FoundMemif finds a memif, by its name in the dataplane, in interfaces.json of its container. Labels and Neighbours are not in the file.
func FoundMemif(object string, a pod.Allocation, list []byte) (Found, error) {
	f := Found{Type: pod.TypeMemif, Object: object, Netns: a.Netns, Pod: a.Pod}
	var read interfaceList
	if err := json.Unmarshal(list, &read); err != nil {
		return f, fmt.Errorf("list of the memifs of allocation %s: %w", a.ID, err)
	}
	for _, m := range read.Interfaces {
		if desired.ObjectName(a.Attachment, m.Name) != object {
			continue
		}
		f.Name, f.Alias, f.MTU = m.Name, desired.AliasOf(a.Attachment, m.Name), m.MTU
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

// memif is the inverse of an entry of interfacesFile.
func (m listedMemif) memif(a pod.Allocation) *pod.Memif {
	return &pod.Memif{
		Container: a.Container, Allocation: a.ID, Socket: a.Socket, SocketPath: a.SocketPath(), ID: m.ID, Mode: m.Mode,
		RingSize: m.RingSize, BufferSize: m.BufferSize, RxQueues: m.RxQueues, TxQueues: m.TxQueues, UID: a.UID, GID: a.GID,
	}
}

// MemifAsMade returns the properties that the dataplane created a memif with and cannot change.
func (ps *Pods) MemifAsMade(f Found) wire.Interface {
	return wire.Interface{Type: wire.TypeMemif, Memif: desired.MemifOf(f.Memif, ps.secretOf(f.Memif.Allocation))}
}

// ListPath returns the path of interfaces.json of an allocation.
func ListPath(a pod.Allocation) string { return path.Join(a.Directory, listName) }

// listName is the name of interfaceList in the directory of an allocation.
const listName = "interfaces.json"
