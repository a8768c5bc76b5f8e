package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPBlock is a part of an IPPool, or of a CustomNetwork's addresses, that belongs to one node. Its name is derived from
// its network and CIDR, so only one node can claim a block. It has no owner reference: pods may still run when the Node
// object is deleted. The controller deletes the block 15 minutes later.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=block,categories=weft
// +kubebuilder:selectablefield:JSONPath=`.spec.node`
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:selectablefield:JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.node`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status.free`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IPBlock struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The addresses of the block and the node that has it.
	// +required
	Spec IPBlockSpec `json:"spec"`

	// Use of the block's addresses, as reported by the node.
	// +optional
	Status IPBlockStatus `json:"status,omitempty"`
}

// IPBlockSpec has the addresses of a block and the node that has it.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.node) || oldSelf.node.size() == 0 || !has(self.node) || self.node.size() == 0 || self.node == oldSelf.node",message="a block cannot move to another node before its node has released it"
// +kubebuilder:validation:XValidation:rule="has(self.network) == has(oldSelf.network)",message="the network of a block cannot be changed"
type IPBlockSpec struct {
	// The addresses. Cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the cidr of a block cannot be changed"
	CIDR CIDR `json:"cidr"`

	// The IPPool that the block is a part of; empty for a block of a CustomNetwork.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool,omitempty"`

	// The CustomNetwork that the block is a part of; empty for a block of an IPPool. Cannot be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the network of a block cannot be changed"
	Network NetworkName `json:"network,omitempty"`

	// The node that allocates the addresses. Empty: any node may claim the block.
	// +optional
	Node NodeName `json:"node,omitempty"`

	// Addresses that other nodes may borrow; the node does not allocate them. Only the node writes this field, and it
	// does not remove an address that is borrowed.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Offered []IP `json:"offered,omitempty"`

	// The borrowed addresses and the nodes that borrow them.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=64
	Borrowed []Loan `json:"borrowed,omitempty"`

	// Addresses that nodes request for pods with static addresses. The node of the block offers a requested address,
	// and only the requesting node may borrow it, or removes the request if one of its own pods uses the address.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=64
	Requested []AddressRequest `json:"requested,omitempty"`
}

// AddressRequest is an address of a block that a node requests for a pod with that static address.
type AddressRequest struct {
	// The address.
	// +required
	Address IP `json:"address"`

	// The node that requests it.
	// +required
	Node NodeName `json:"node"`

	// Namespace of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
}

// Loan is an address of a block that another node uses.
type Loan struct {
	// The address.
	// +required
	Address IP `json:"address"`

	// The node that uses it.
	// +required
	Node NodeName `json:"node"`

	// Namespace of the pod for which the node requested this address.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of that pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
}

// IPBlockStatus is the node's report of the addresses of its block. No component makes decisions by it.
type IPBlockStatus struct {
	// Number of addresses that pods have.
	// +optional
	Used int32 `json:"used,omitempty"`

	// Number of released addresses that cool down.
	// +optional
	Cooling int32 `json:"cooling,omitempty"`

	// Number of addresses that are free now.
	// +optional
	Free int32 `json:"free,omitempty"`

	// The used addresses and the pods that have them.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=4096
	Allocations []Allocation `json:"allocations,omitempty"`

	// Conflict: another node has the block, but this node has pods with its addresses.
	// +optional
	Conditions Conditions `json:"conditions,omitempty"`
}

// Allocation is an address that a pod has.
type Allocation struct {
	// The address.
	// +required
	Address IP `json:"address"`

	// Namespace of the pod; empty for a container that is not a pod.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`

	// UID of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`

	// Attachment that has the address: network/container/interface. It identifies the allocation.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Attachment string `json:"attachment"`
}

// IPBlockList is a list of blocks.
//
// +kubebuilder:object:root=true
type IPBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPBlock `json:"items"`
}
