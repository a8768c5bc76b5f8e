package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeNetwork is the announcement of a node to the other nodes, which need it to reach the node's pods. It has the name
// of the node, and only the agent of that node writes it. The Node object owns it and is deleted with it.
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

	// Identifiers and addresses for the tunnels and routes of other nodes.
	// +required
	Spec NodeNetworkSpec `json:"spec"`

	// Status of the agent.
	// +optional
	Status NodeNetworkStatus `json:"status,omitempty"`
}

// NodeNetworkSpec has the identifiers and addresses for the tunnels and routes of other nodes.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.nodeID) || !has(oldSelf.nodeIDConfirmed) || !oldSelf.nodeIDConfirmed || (has(self.nodeID) && self.nodeID == oldSelf.nodeID)",message="a confirmed nodeID cannot be changed"
type NodeNetworkSpec struct {
	// Number of the node, unique in the cluster.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodeID int32 `json:"nodeID,omitempty"`

	// Whether the node has verified, after writing nodeID, that no other node has the same one. Other nodes ignore an
	// unconfirmed nodeID.
	// +optional
	NodeIDConfirmed bool `json:"nodeIDConfirmed,omitempty"`

	// Addresses at which other nodes reach the node's dataplane, at most one of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []IP `json:"addresses,omitempty"`

	// The tunnel to this node.
	// +optional
	Tunnel Tunnel `json:"tunnel,omitempty"`

	// Networks on the node, with the node's blocks of their addresses.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Networks []NodePart `json:"networks,omitempty"`

	// Ranges of client addresses, at most one of each family. The node routes replies of Services' endpoints to the
	// client addresses of pods in these ranges to the pods' nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	ServiceClientRanges []CIDR `json:"serviceClientRanges,omitempty"`
}

// Tunnel is the encapsulation of packets to a node.
type Tunnel struct {
	// VXLAN, or None if the nodes share a subnet and route to each other.
	// +optional
	Type TunnelType `json:"type,omitempty"`

	// IP family of the outer headers of VXLAN. Agents that do not know the field leave it out.
	// +optional
	IPFamily IPFamily `json:"ipFamily,omitempty"`

	// UDP port of VXLAN.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// MTU of the path to the node in bytes, including the outer headers.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
}

// TunnelType is the encapsulation between nodes.
//
// +kubebuilder:validation:Enum=VXLAN;None
type TunnelType string

// The encapsulations.
const (
	TunnelVXLAN TunnelType = "VXLAN"
	TunnelNone  TunnelType = "None"
)

// IPFamily is a family of addresses.
//
// +kubebuilder:validation:Enum=IPv4;IPv6
type IPFamily string

// The families.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// NodePart is a node's part of a network.
type NodePart struct {
	// The network: default, or the name of a CustomNetwork.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// VXLAN network identifier of the network on the node.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16777215
	VNI int32 `json:"vni,omitempty"`

	// MAC address of the node's own interface in the network.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`
	MAC string `json:"mac,omitempty"`

	// The node's own addresses in the network, at most one of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Gateways []IP `json:"gateways,omitempty"`

	// Blocks of pod addresses on the node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	CIDRs []CIDR `json:"cidrs,omitempty"`

	// Prefixes behind pods of the node, which the network routes to them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	RoutedPrefixes []CIDR `json:"routedPrefixes,omitempty"`
}

// NodeNetworkStatus is the status of an agent.
type NodeNetworkStatus struct {
	// Version of the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`

	// Networks that the node refused or could not create, with the reasons.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Refused []Refusal `json:"refused,omitempty"`

	// CustomNetworks on the node, with their generations.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Networks []Observed `json:"networks,omitempty"`

	// ExternalInterfaces that name the node, with their state on the node.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Externals []ObservedExternal `json:"externals,omitempty"`

	// Ready: the node serves pods.
	// +optional
	Conditions Conditions `json:"conditions,omitempty"`
}

// Refusal is a network that a node did not create or change.
type Refusal struct {
	// The network.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// The reason, in one line.
	// +required
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
}

// Observed is a network on a node.
type Observed struct {
	// The network.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Generation of the object on the node.
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

	// Generation of the object that was observed.
	// +required
	Generation int64 `json:"generation"`

	// Why the network is not connected on the node, in one line. Unset: it is connected.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
}

// NodeNetworkList is a list of node networks.
//
// +kubebuilder:object:root=true
type NodeNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeNetwork `json:"items"`
}
