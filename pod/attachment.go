// Package pod is the vocabulary of a pod on this node: its attachments, and the events about them with what handlers fill in.
package pod

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// Key identifies an attachment: one interface that one network gave to one sandbox. It is the key of everything that
// Weft keeps about a pod; a pod's name is never enough, because a pod made again has the same name.
type Key struct {
	Network     string `json:"network"`     // name of the CNI network
	ContainerID string `json:"containerID"` // of the sandbox
	IfName      string `json:"ifName"`      // of the main interface in the sandbox
}

// String joins the parts with slashes. None of them may hold one, so it is unique; it is also the subject of events.
func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// ID names a pod of Kubernetes. The zero ID is a container that no Kubernetes knows.
type ID struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// IsZero reports whether the container is not a pod of Kubernetes.
func (id ID) IsZero() bool { return id == ID{} }

// String gives namespace/name, or "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return id.Namespace + "/" + id.Name
}

// Netns is a network namespace as it was when the pod was added. The path alone does not identify it: another one may
// be mounted there later.
type Netns struct {
	Path   string `json:"path"`
	Inode  uint64 `json:"inode"`
	Device uint64 `json:"device"`
}

// Attachment is what is kept about a wired pod, durable before the runtime gets its answer.
type Attachment struct {
	Key             Key               `json:"key"`
	Pod             ID                `json:"pod"`
	Netns           Netns             `json:"netns"`
	Mode            string            `json:"mode,omitempty"` // what Weft is to the sandbox; "" is primary, or not known
	Created         time.Time         `json:"created"`
	Annotations     map[string]string `json:"annotations,omitempty"`     // contivpp.io/... and the network selection, as they were at ADD
	AnnotationsFrom string            `json:"annotationsFrom,omitempty"` // who gave them: runtime, cache, API server, or none
	Interfaces      []Interface       `json:"interfaces"`                // the main interface first, unless another plugin made it; then in the order asked for
	Delegation      Delegation        `json:"delegation,omitzero"`       // what a foreign IPAM plugin gave beside addresses

	// AwaitsAddresses is true while a foreign IPAM plugin asks for the main interface's addresses by that interface: the
	// ADD is not at its end.
	AwaitsAddresses bool `json:"awaitsAddresses,omitempty"`
}

// Name is what people call the attachment: the pod where there is one, else the container.
func (a *Attachment) Name() string {
	if a.Pod.IsZero() {
		return "container " + ShortID(a.Key.ContainerID)
	}
	return "pod " + a.Pod.String()
}

// ShortID shortens a container id to the 12 characters that runtimes show.
func ShortID(containerID string) string {
	if len(containerID) > 12 {
		return containerID[:12]
	}
	return containerID
}

// Interface is one interface of an attachment, as its pod and the CNI result see it.
type Interface struct {
	Name      string         `json:"name"`                // in the pod
	Type      string         `json:"type"`                // tap, veth, memif, or ipam: addresses only, for an interface that is not ours
	Network   string         `json:"network,omitempty"`   // Weft's network; "" is default
	Object    string         `json:"object"`              // name of the dataplane's interface (kind vpp.interface); "" for type ipam
	MAC       string         `json:"mac"`                 // of the pod's end
	MTU       int            `json:"mtu"`                 // bytes
	RxQueues  int            `json:"rxQueues,omitempty"`  // of type tap or veth: that the pod reads from; 0 is one
	TxQueues  int            `json:"txQueues,omitempty"`  // that it writes to; 0 is one
	Memif     *Memif         `json:"memif,omitempty"`     // of type memif
	Pools     []string       `json:"pools,omitempty"`     // where Addresses come from, in the same order; "" = not from a pool
	Addresses []netip.Prefix `json:"addresses,omitempty"` // at most one a family
	Gateways  []netip.Addr   `json:"gateways,omitempty"`  // of Addresses, in the same order
	Routes    []Route        `json:"routes,omitempty"`
	AntiSpoof bool           `json:"antiSpoof,omitempty"` // its network had the pod's sources checked when it was made

	Definition string `json:"definition,omitempty"` // the NetworkAttachmentDefinition that asked for it, namespace/name
}

// Route is a route in the pod by one of its interfaces.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"` // not valid: on the link
}

// Memif is what an interface of type memif has beside what all have. Its secret is its allocation's.
type Memif struct {
	Container  string `json:"container"`  // that has it
	Allocation string `json:"allocation"` // the allocation's ID
	Socket     uint32 `json:"socket"`     // number of the socket in the dataplane
	SocketPath string `json:"socketPath"` // on the node
	ID         uint32 `json:"id"`         // on the socket, from 1 in each container
	Mode       string `json:"mode"`       // ethernet or ip
	RingSize   int    `json:"ringSize"`   // slots
	BufferSize int    `json:"bufferSize"` // bytes of a slot
	RxQueues   int    `json:"rxQueues"`   // that the pod reads from
	TxQueues   int    `json:"txQueues"`   // that the pod writes to
	UID        int    `json:"uid"`
	GID        int    `json:"gid"` // or UnknownGroup
}

// Delegation is what a foreign IPAM plugin gave beside addresses. It is kept with the attachment, so that a repeated ADD
// has the same result.
type Delegation struct {
	Routes []Route `json:"routes,omitempty"`
	DNS    DNS     `json:"dns,omitzero"`
}

// IsZero reports whether it gave nothing.
func (d Delegation) IsZero() bool { return len(d.Routes) == 0 && d.DNS.IsZero() }

// DNS is that of a CNI result: what a pod's resolver is to be told.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero reports whether there is nothing to be told.
func (d DNS) IsZero() bool {
	return len(d.Nameservers) == 0 && d.Domain == "" && len(d.Search) == 0 && len(d.Options) == 0
}

// AddressPod gives an attachment that awaits them the addresses of its main interface: Requested has what the foreign IPAM
// plugin gave, the rest of it is empty. When it fails the attachment awaits them still.
type AddressPod struct {
	Key       Key
	ID        ID // for people
	Requested Requested

	// Prepare completes Requested before the event is queued; nil: it is complete.
	Prepare func(*AddressPod) error

	// Attachment is made by the first handler and completed by the others. With Repeated it has its addresses already,
	// and nothing is to be done.
	Attachment *Attachment
	Repeated   bool
}

// Main is the place of the main interface in Attachment; -1 if that has none.
func (e *AddressPod) Main() int {
	return slices.IndexFunc(e.Attachment.Interfaces, func(i Interface) bool { return i.Name == e.Key.IfName })
}

// String names the event as logs and records show it.
func (e *AddressPod) String() string { return "address " + describe(e.ID, e.Key) }

// Subject is the attachment: a DeletePod of the same one cancels this event.
func (e *AddressPod) Subject() string { return e.Key.String() }

// Load completes the request's part.
func (e *AddressPod) Load(context.Context) error {
	if e.Prepare == nil {
		return nil
	}
	return e.Prepare(e)
}

// Validate refuses a key that cannot be one.
func (e *AddressPod) Validate() error { return e.Key.Validate() }
