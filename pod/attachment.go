// Package pod has the types for pods of this node: annotations, attachments, events, and the results that handlers set
// in events.
package pod

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"time"

	"github.com/weftnet/weft/internal/netaddr"
)

// Key identifies an attachment: one ADD of one network for one sandbox. A pod's name is not a key, because a recreated
// pod has the same name.
type Key struct {
	Network     string `json:"network"`     // name of the CNI network
	ContainerID string `json:"containerID"` // of the sandbox
	IfName      string `json:"ifName"`      // of the main interface in the sandbox
}

// String joins the parts with slashes, which they must not contain. It is also the subject of events.
func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// ID names a Kubernetes pod. The zero ID is a container outside Kubernetes.
type ID struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// IsZero reports whether the container is outside Kubernetes.
func (id ID) IsZero() bool { return id == ID{} }

// String returns namespace/name, or "" for the zero ID.
func (id ID) String() string {
	if id.IsZero() {
		return ""
	}
	return id.Namespace + "/" + id.Name
}

// Netns is the network namespace at the time of the ADD. The path does not identify it: later another one can be
// mounted there.
type Netns struct {
	Path   string `json:"path"`
	Inode  uint64 `json:"inode"`
	Device uint64 `json:"device"`
}

// Attachment is the state of a connected pod. It is durable before the reply to the runtime.
type Attachment struct {
	Key             Key               `json:"key"`
	Pod             ID                `json:"pod"`
	Netns           Netns             `json:"netns"`
	Mode            string            `json:"mode,omitempty"` // one of the Mode constants; "" is primary, or unknown
	Created         time.Time         `json:"created"`
	Annotations     map[string]string `json:"annotations,omitempty"`     // at the time of the ADD, see KeepsAnnotation
	AnnotationsFrom string            `json:"annotationsFrom,omitempty"` // source: runtime, cache, API server, or none
	// the main interface first, unless another plugin created it; then in the order of the requests
	Interfaces []Interface `json:"interfaces"`
	// result of a foreign IPAM plugin except addresses
	Delegation Delegation `json:"delegation,omitzero"`

	// FixedInterfaces means that the runtime passed other annotations at the ADD than the API server showed: edits
	// there do not change the interfaces.
	FixedInterfaces bool `json:"fixedInterfaces,omitempty"`

	// AwaitsAddresses is true while a foreign IPAM plugin uses the main interface to get its addresses (dhcp): the ADD
	// is not finished.
	AwaitsAddresses bool `json:"awaitsAddresses,omitempty"`
}

// Name returns the pod, or else the container, for people.
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

// Interface is one interface of an attachment in the pod and in the CNI result.
type Interface struct {
	Name      string         `json:"name"`                // in the pod
	Type      string         `json:"type"`                // tap, veth, memif or ipam
	Network   string         `json:"network,omitempty"`   // "" is default
	Object    string         `json:"object"`              // name of the dataplane's interface (kind vpp.interface); "" for type ipam
	MAC       netaddr.MAC    `json:"mac"`                 // of the pod's end
	MTU       int            `json:"mtu"`                 // bytes
	RxQueues  int            `json:"rxQueues,omitempty"`  // of type tap or veth: the pod receives from; 0 is one
	TxQueues  int            `json:"txQueues,omitempty"`  // the pod sends to; 0 is one
	Memif     *Memif         `json:"memif,omitempty"`     // of type memif
	Pools     []string       `json:"pools,omitempty"`     // of Addresses, in the same order; "" = not from a pool
	Addresses []netip.Prefix `json:"addresses,omitempty"` // at most one of each family
	Gateways  []netip.Addr   `json:"gateways,omitempty"`  // of Addresses, in the same order
	Routes    []Route        `json:"routes,omitempty"`
	AntiSpoof bool           `json:"antiSpoof,omitempty"` // the network had anti-spoofing at the time of the ADD

	Forwarding bool `json:"forwarding,omitempty"` // requested: the pod's kernel forwards packets from the interface

	AllowedAddresses []netip.Prefix `json:"allowedAddresses,omitempty"` // that others may have too
	VirtualRouters   []int          `json:"virtualRouters,omitempty"`   // whose MACs it may use
	RoutedPrefixes   []netip.Prefix `json:"routedPrefixes,omitempty"`   // behind the pod: the network routes them to it

	IPAMClaim string `json:"ipamClaim,omitempty"` // that holds the addresses, in the namespace of the pod

	Limits Limits `json:"limits,omitzero"`

	VLANs netaddr.VLANs `json:"vlans,omitempty"` // of a trunk: of the network, by their tags

	DNS DNS `json:"dns,omitzero"` // of the network, if the interface requested it

	Definition string `json:"definition,omitempty"` // NetworkAttachmentDefinition that requested it, namespace/name

	Late bool `json:"late,omitempty"` // made after the ADD, by a ChangePod: the runtime's result of the ADD lacks it
}

// Route is a route in the pod through one of its interfaces.
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"` // invalid: on link
	Metric      int          `json:"metric,omitempty"` // of routes to one destination the lowest is used
}

// String returns the route in the words of ip-route(8).
func (r Route) String() string {
	return RouteRequest{To: r.Destination, Via: r.Gateway, Metric: r.Metric}.String()
}

// IsAlike reports whether the kernel has one of both routes only: they have the same destination and metric.
func (r Route) IsAlike(o Route) bool { return r.Destination == o.Destination && r.Metric == o.Metric }

// Memif are the additional fields of an interface of type memif. The allocation has the secret.
type Memif struct {
	Container  string `json:"container"`      // owner
	Allocation string `json:"allocation"`     // the allocation's ID
	Socket     uint32 `json:"socket"`         // number of the socket in the dataplane
	SocketPath string `json:"socketPath"`     // on the node
	ID         uint32 `json:"id"`             // on the socket, from 1 in each container
	Mode       string `json:"mode"`           // ethernet or ip
	Role       string `json:"role,omitempty"` // on a direct network, RoleClient or RoleServer; "": the dataplane is the server
	RingSize   int    `json:"ringSize"`       // slots
	BufferSize int    `json:"bufferSize"`     // bytes of a slot
	RxQueues   int    `json:"rxQueues"`       // the pod receives from
	TxQueues   int    `json:"txQueues"`       // the pod sends to
	UID        int    `json:"uid"`
	GID        int    `json:"gid"` // or UnknownGroup
}

// IsDirect reports whether the memif is connected to that of another pod, not to the dataplane.
func (m *Memif) IsDirect() bool { return m.Role != "" }

// DirectSocket returns the path on the node of the socket that the client of a direct memif connects to, beside the
// dataplane's socket.
func (m *Memif) DirectSocket() string {
	return path.Join(path.Dir(m.SocketPath), fmt.Sprintf("d%d.sock", m.ID))
}

// ServerSocket returns the abstract socket that the server of a direct memif listens on, in the network namespace of
// its pod.
func (i *Interface) ServerSocket() string { return "@weft/" + i.Name }

// Delegation is the result of a foreign IPAM plugin except addresses. Attachments store it for the reply of a repeated
// ADD.
type Delegation struct {
	Routes []Route `json:"routes,omitempty"`
	DNS    DNS     `json:"dns,omitzero"`
}

// IsZero reports whether the result has only addresses.
func (d Delegation) IsZero() bool { return len(d.Routes) == 0 && d.DNS.IsZero() }

// AddressPod adds addresses to the main interface of an attachment that awaits them: Requested has the result of the
// foreign IPAM plugin only. After a failure the attachment still awaits addresses.
type AddressPod struct {
	Key       Key
	ID        ID // for people
	Requested Requested

	// Preparation is how Requested was completed.
	Preparation

	// Attachment is set by the first handler and completed by the others. Repeated means that it already has its
	// addresses.
	Attachment *Attachment
	Repeated   bool
}

// Main returns the index of the main interface in Attachment, or -1.
func (e *AddressPod) Main() int {
	return slices.IndexFunc(e.Attachment.Interfaces, func(i Interface) bool { return i.Name == e.Key.IfName })
}

// String returns the name of the event in logs and records.
func (e *AddressPod) String() string { return "address " + describe(e.ID, e.Key) }

// Subject returns the key of the attachment. A DeletePod of the same subject cancels this event.
func (e *AddressPod) Subject() string { return e.Key.String() }

// Validate rejects an invalid key, and a result of the IPAM plugin with too long lists.
func (e *AddressPod) Validate() error {
	if err := e.Key.Validate(); err != nil {
		return err
	}
	if err := e.Requested.Validate(); err != nil {
		return Errorf(CodeInvalidConfig, "%s: %w", e, err)
	}
	return nil
}
