package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExternalInterface connects a network to the outside of the cluster by interfaces of one or more nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=extif,categories=weft
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExternalInterface struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The network and its interfaces.
	// +required
	Spec ExternalInterfaceSpec `json:"spec"`

	// Observed state of the interfaces.
	// +optional
	Status ExternalInterfaceStatus `json:"status,omitempty"`
}

// ExternalInterfaceSpec has the network and its interfaces.
type ExternalInterfaceSpec struct {
	// The network: default, or the name of a CustomNetwork.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self != 'stub'",message="the network stub cannot have external interfaces"
	Network string `json:"network"`

	// The interfaces, at most one on a node.
	// +required
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Nodes []ExternalNode `json:"nodes"`
}

// ExternalNode is the interface on one node.
type ExternalNode struct {
	// The node.
	// +required
	// +kubebuilder:validation:MinLength=1
	Node NodeName `json:"node"`

	// Name of the interface on the node, in Linux or in the dataplane.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	Interface string `json:"interface"`

	// VLAN of the network's frames. Unset: untagged frames.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN *int32 `json:"vlan,omitempty"`

	// The node's own addresses on the interface, with prefix length, at most one of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="expected an address with prefix length, for example 192.0.2.1/24"
	IPs []string `json:"ips,omitempty"`
}

// ExternalInterfaceStatus is the observed state of an external interface.
type ExternalInterfaceStatus struct {
	// Generation of the object at which the conditions were observed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The nodes as one line, because kubectl get shows only the first element of a list.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Nodes string `json:"nodes,omitempty"`

	// Ready: all listed nodes have their interface.
	// +optional
	Conditions Conditions `json:"conditions,omitempty"`
}

// ExternalInterfaceList is a list of external interfaces.
//
// +kubebuilder:object:root=true
type ExternalInterfaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExternalInterface `json:"items"`
}
