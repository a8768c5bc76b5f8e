package ipnet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weftnet/weft/pod"
)

// MemifLimits are the most that a pod can ask for of a memif.
type MemifLimits struct {
	RingSize   int // slots; default 4096
	BufferSize int // bytes; default 16384
	Queues     int // in each direction; default 4
}

// Defaults of a memif.
const (
	defaultRingSize   = 1024
	defaultBufferSize = 2048
	defaultQueues     = 1
)

func (l MemifLimits) withDefaults() MemifLimits {
	return MemifLimits{
		RingSize: cmp.Or(l.RingSize, 4096), BufferSize: cmp.Or(l.BufferSize, 16384), Queues: cmp.Or(l.Queues, 4),
	}
}

// grantMemifs decides which container has each of the memifs that a pod wishes for: the one whose device somebody chose,
// the one that its options name, else the first of the pod's containers whose limit is not reached. They are served in this
// order; each container numbers its own from 1, those first that other attachments of the sandbox have, then in the order
// of the annotation.
func (n *Network) grantMemifs(ev *pod.AddPod, wishes []wish) error {
	others := memifsOf(n.besides(ev.Key, ev.Netns))
	left, ids := make([]int, len(ev.Grants)), make(map[string]uint32)
	for g := range ev.Grants {
		held := others[ev.Grants[g].Allocation.ID]
		left[g] = len(ev.Grants[g].Allocation.Devices) - len(held)
		for _, i := range held {
			ids[ev.Grants[g].Container] = max(ids[ev.Grants[g].Container], i.Memif.ID)
		}
	}
	chosen, err := chooseGrants(ev, wishes, left)
	if err != nil {
		return err
	}
	for at := range wishes {
		if g, ok := chosen[at]; ok {
			grant := &ev.Grants[g]
			ids[grant.Container]++
			wishes[at].memif = wishes[at].memifOf(grant, ids[grant.Container])
		}
	}
	return sameOwner(ev, wishes, others)
}

// chooseGrants finds for each of the wishes that is a memif the grant that it is of; left is how many more each may have.
func chooseGrants(ev *pod.AddPod, wishes []wish, left []int) (map[int]int, error) {
	chosen := make(map[int]int)
	if at, g, err := byDevice(ev, wishes, left); err != nil {
		return nil, err
	} else if g >= 0 {
		left[g]--
		chosen[at] = g
	}
	for _, named := range []bool{true, false} {
		for at, w := range wishes {
			if _, done := chosen[at]; done || w.kind != pod.TypeMemif || (w.options.Container != "") != named {
				continue
			}
			g := firstWithRoom(ev.Grants, left, w.options.Container)
			if g < 0 {
				return nil, deviceMissing(ev, wishes, w)
			}
			left[g]--
			chosen[at] = g
		}
	}
	return chosen, nil
}

// byDevice finds the grant of the device that somebody chose for the main interface, if it is a memif; -1: nobody did.
func byDevice(ev *pod.AddPod, wishes []wish, left []int) (at, g int, err error) {
	device := ev.Requested.DeviceID
	at = slices.IndexFunc(wishes, func(w wish) bool { return w.name == ev.Key.IfName && w.kind == pod.TypeMemif })
	if device == "" || at < 0 {
		return at, -1, nil
	}
	g = slices.IndexFunc(ev.Grants, func(g pod.Grant) bool { return slices.Contains(g.Allocation.Devices, device) })
	c := wishes[at].options.Container
	switch {
	case g < 0:
		return at, g, pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: deviceID %q is of no container of the pod; these have a %s: %s",
			ev, wishes[at].name, device, pod.Resource, containersOf(ev))
	case c != "" && c != ev.Grants[g].Container:
		return at, g, pod.Errorf(pod.CodeInvalidConfig, "%s: interface %s: deviceID %q is container %s's, and the option container says %s",
			ev, wishes[at].name, device, ev.Grants[g].Container, c)
	case left[g] <= 0:
		return at, g, deviceMissing(ev, wishes, wishes[at])
	}
	return at, g, nil
}

// memifsOf are the memifs of attachments, by their allocation.
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

// firstWithRoom is the first grant that has a device left, of a container if that is said; -1 if there is none.
func firstWithRoom(grants []pod.Grant, left []int, container string) int {
	for g := range grants {
		if left[g] > 0 && (container == "" || grants[g].Container == container) {
			return g
		}
	}
	return -1
}

// memifOf is a memif of a container.
func (w wish) memifOf(g *pod.Grant, id uint32) *pod.Memif {
	m := &pod.Memif{
		Container: g.Container, Allocation: g.Allocation.ID, Socket: g.Allocation.Socket, SocketPath: g.Allocation.SocketPath(), ID: id,
		Mode:     cmp.Or(w.options.Mode, pod.MemifEthernet),
		RingSize: cmp.Or(w.options.RingSize, defaultRingSize), BufferSize: cmp.Or(w.options.BufferSize, defaultBufferSize),
		RxQueues: cmp.Or(w.rxQueues, defaultQueues), TxQueues: cmp.Or(w.txQueues, defaultQueues),
		GID: g.GID,
	}
	if w.options.UID != nil {
		m.UID = int(*w.options.UID)
	}
	if w.options.GID != nil {
		m.GID = int(*w.options.GID)
	}
	return m
}

// deviceMissing says which resource a pod lacks, and where.
func deviceMissing(ev *pod.AddPod, wishes []wish, w wish) error {
	if ev.ID.IsZero() {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: a memif is counted in the limits of a pod of Kubernetes as %s, and this is no such pod",
			ev, w.name, pod.Resource)
	}
	if c := w.options.Container; c != "" && !slices.ContainsFunc(ev.Grants, func(g pod.Grant) bool { return g.Container == c }) {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: container %s has no %s in its limits; these have: %s; set it there, or choose another container in annotation %s",
			ev, w.name, c, pod.Resource, containersOf(ev), pod.AnnotationOptions)
	}
	needed, have, where := 0, 0, "the pod's containers have"
	for _, o := range wishes {
		if o.kind == pod.TypeMemif && (w.options.Container == "" || o.options.Container == w.options.Container) {
			needed++
		}
	}
	for _, g := range ev.Grants {
		if w.options.Container == "" || g.Container == w.options.Container {
			have += len(g.Allocation.Devices)
		}
	}
	if w.options.Container != "" {
		where = "container " + w.options.Container + " has"
	}
	return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: %s %d of %s and annotation %s asks for %d; raise the limits, or ask for fewer",
		ev, w.name, where, have, pod.Resource, pod.AnnotationCustom, needed)
}

func containersOf(ev *pod.AddPod) string {
	var names []string
	for _, g := range ev.Grants {
		names = append(names, g.Container)
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// sameOwner refuses a container whose memifs are to have different owners: they share a socket. others are those that the
// sandbox has already, by allocation.
func sameOwner(ev *pod.AddPod, wishes []wish, others map[string][]pod.Interface) error {
	first := make(map[string]wish)
	for _, held := range others {
		first[held[0].Memif.Container] = wish{name: held[0].Name, memif: held[0].Memif}
	}
	for _, w := range wishes {
		if w.memif == nil {
			continue
		}
		o, shared := first[w.memif.Container]
		if shared && (o.memif.UID != w.memif.UID || o.memif.GID != w.memif.GID) {
			return pod.Errorf(pod.CodeInvalidAnnotation, "%s: annotation %s: interfaces %s and %s of container %s share a socket, so their uid and gid must be the same",
				ev, pod.AnnotationOptions, o.name, w.name, w.memif.Container)
		}
		if !shared {
			first[w.memif.Container] = w
		}
	}
	return nil
}

// memifPossible refuses a memif that this node does not have, or would not give.
func (n *Network) memifPossible(ev *pod.AddPod, w wish) error {
	if n.config.Secret == nil {
		return pod.Errorf(pod.CodeDeviceMissing, "%s: interface %s: this node has no memifs: devices.memif.count in its configuration is 0", ev, w.name)
	}
	if w.options.Mode == pod.MemifIP && w.custom != nil && (w.custom.Network.Type == pod.L2 || w.custom.Network.AntiSpoof) {
		return pod.Errorf(pod.CodeInvalidAnnotation, "%s: interface %s: mode ip has no MACs, which network %s needs; use mode ethernet, or another network",
			ev, w.name, w.network)
	}
	most := n.config.Memif
	return allowed(ev, w,
		option{"ringSize", w.options.RingSize, most.RingSize}, option{"bufferSize", w.options.BufferSize, most.BufferSize},
		option{"rxQueues", w.rxQueues, most.Queues}, option{"txQueues", w.txQueues, most.Queues},
	)
}
