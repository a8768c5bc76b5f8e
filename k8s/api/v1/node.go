package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeNetwork is what the other nodes must know of one node to reach its pods. Its name is the node's, and only the
// agent of that node writes it. The node is its owner: it is collected with the Node object.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=nnet,categories=weft
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Addresses",type=string,JSONPath=`.spec.addresses`
// +kubebuilder:printcolumn:name="Transport",type=string,JSONPath=`.spec.tunnel.type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeNetwork struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What other nodes build their tunnels and routes from.
	// +required
	Spec NodeNetworkSpec `json:"spec"`

	// What the agent tells of itself.
	// +optional
	Status NodeNetworkStatus `json:"status,omitempty"`
}

// NodeNetworkSpec is what other nodes build their tunnels and routes from.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.nodeID) || !has(oldSelf.nodeIDConfirmed) || !oldSelf.nodeIDConfirmed || (has(self.nodeID) && self.nodeID == oldSelf.nodeID)",message="a confirmed nodeID cannot be changed"
type NodeNetworkSpec struct {
	// Number of the node, unlike that of every other node.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodeID int32 `json:"nodeID,omitempty"`

	// Whether the node made sure, after it wrote nodeID, that no other node has it. Before that nobody uses it.
	// +optional
	NodeIDConfirmed bool `json:"nodeIDConfirmed,omitempty"`

	// Addresses at which other nodes reach the node's dataplane, at most one of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []IP `json:"addresses,omitempty"`

	// How packets to this node travel.
	// +optional
	Tunnel Tunnel `json:"tunnel,omitempty"`

	// Networks that the node has, with its part of their addresses.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Networks []NodePart `json:"networks,omitempty"`
}

// Tunnel says how packets to a node travel.
type Tunnel struct {
	// VXLAN, or None where the nodes share an L2 and route to each other.
	// +optional
	Type TunnelType `json:"type,omitempty"`

	// UDP port of VXLAN.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// Bytes that a packet may have on the way to the node, with its outer headers.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9216
	MTU int32 `json:"mtu,omitempty"`
}

// TunnelType is a way of packets between nodes.
//
// +kubebuilder:validation:Enum=VXLAN;None
type TunnelType string

// The ways of packets between nodes.
const (
	TunnelVXLAN TunnelType = "VXLAN"
	TunnelNone  TunnelType = "None"
)

// NodePart is the part that a node has of a network.
type NodePart struct {
	// The network: default, or the name of a CustomNetwork.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// VXLAN network identifier that the node uses for it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16777215
	VNI int32 `json:"vni,omitempty"`

	// MAC address of the node's own interface in it.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`
	MAC string `json:"mac,omitempty"`

	// The node's own address in it, at most one of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Gateways []IP `json:"gateways,omitempty"`

	// Blocks of addresses whose pods are on the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	CIDRs []CIDR `json:"cidrs,omitempty"`
}

// NodeNetworkStatus is what an agent tells of itself.
type NodeNetworkStatus struct {
	// Version of the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// Networks that the node refused or could not make, and why.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Refused []Refusal `json:"refused,omitempty"`

	// Generations of the CustomNetworks that the node has.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Networks []Observed `json:"networks,omitempty"`

	// ExternalInterfaces of which the node has a part, and how they stand there.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Externals []ObservedExternal `json:"externals,omitempty"`

	// Ready: the node serves pods.
	// +optional
	Conditions Conditions `json:"conditions,omitempty"`
}

// Refusal is a network that a node left as it was, or without.
type Refusal struct {
	// The network.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Why, in one line.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// Observed is a network that a node has.
type Observed struct {
	// The network.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Generation of its object that the node has.
	// +required
	Generation int64 `json:"generation"`

	// The network is being deleted and the node adds no more pods to it.
	// +optional
	Closed bool `json:"closed,omitempty"`

	// Pods that still use the closed network, as namespace/name, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	Pods []string `json:"pods,omitempty"`
}

// ObservedExternal is a node's part of an ExternalInterface.
type ObservedExternal struct {
	// The ExternalInterface.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Generation of the object that this speaks of.
	// +required
	Generation int64 `json:"generation"`

	// Why the network is not connected there, in one line. Unset: it is.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// NodeNetworkList is a list of nodes' networks.
//
// +kubebuilder:object:root=true
type NodeNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeNetwork `json:"items"`
}
