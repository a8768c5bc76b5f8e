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
//
// +kubebuilder:validation:XValidation:rule="self.network != 'default' || self.nodes.all(n, !has(n.vlans) || n.vlans.size() == 0)",message="network default has no vlans"
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
//
// +kubebuilder:validation:XValidation:rule="!has(self.vlan) || !has(self.vlans) && !has(self.nativeVLAN) && !has(self.outerVLAN)",message="vlan and vlans exclude each other: vlan is the untagged network, vlans are its VLANs"
// +kubebuilder:validation:XValidation:rule="has(self.vlans) && self.vlans.size() > 0 || !has(self.nativeVLAN) && !has(self.outerVLAN)",message="nativeVLAN and outerVLAN need vlans"
// +kubebuilder:validation:XValidation:rule="!has(self.nativeVLAN) || !has(self.outerVLAN)",message="nativeVLAN and outerVLAN exclude each other: untagged frames have no outer tag"
// +kubebuilder:validation:XValidation:rule="!has(self.vlans) || self.vlans.size() == 0 || !has(self.ips) || self.ips.size() == 0",message="ips: an interface with vlans has no addresses: its network is bridged"
// +kubebuilder:validation:XValidation:rule="!has(self.vlans) || !has(self.nativeVLAN) || self.vlans.all(v, self.nativeVLAN < int(v.split('-')[0]) || self.nativeVLAN > int(v.split('-')[v.split('-').size() - 1]))",message="nativeVLAN is in vlans, too: its frames have either a tag or none"
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

	// VLANs of the network on the interface: 300, or a range such as 100-199. Their frames have a tag there. The
	// network, of type L2, must have these vlans.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, int(b.split('-')[0]) <= int(a.split('-')[a.split('-').size() - 1]) && int(a.split('-')[0]) <= int(b.split('-')[b.split('-').size() - 1])))",message="a VLAN occurs twice"
	// +kubebuilder:validation:XValidation:rule="self.map(v, int(v.split('-')[v.split('-').size() - 1]) - int(v.split('-')[0]) + 1).sum() <= 256",message="at most 256 VLANs are possible"
	VLANs []VLANRange `json:"vlans,omitempty"`

	// VLAN of the network that untagged frames of an interface with vlans belong to; 0: the network itself, as those of
	// its pods without VLAN. Unset: untagged frames are dropped.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	NativeVLAN *int32 `json:"nativeVLAN,omitempty"`

	// VLAN of a tag of 802.1ad before that of vlans (QinQ).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	OuterVLAN *int32 `json:"outerVLAN,omitempty"`

	// The node's own addresses on the interface, with prefix length, at most one of each family.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !isCIDR(self[0]) || !isCIDR(self[1]) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="at most one address of each family is possible"
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
