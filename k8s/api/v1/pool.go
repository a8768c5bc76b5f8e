package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPool is a CIDR of addresses for pods' main interfaces. Nodes claim blocks of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pool,categories=weft
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Block",type=integer,JSONPath=`.spec.blockSize`
// +kubebuilder:printcolumn:name="Claimed",type=integer,JSONPath=`.status.claimedBlocks`
// +kubebuilder:printcolumn:name="Blocks",type=integer,JSONPath=`.status.blocks`
// +kubebuilder:printcolumn:name="Disabled",type=boolean,JSONPath=`.spec.disabled`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name must have at most 63 characters"
type IPPool struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Desired state of the pool.
	// +required
	Spec IPPoolSpec `json:"spec"`

	// Observed state of the pool.
	// +optional
	Status IPPoolStatus `json:"status,omitempty"`
}

// IPPoolSpec is the desired state of a pool.
//
// +kubebuilder:validation:XValidation:rule="has(self.blockSize) == has(oldSelf.blockSize)",message="the size of blocks cannot be changed"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.blockSize) || (cidr(self.cidr).ip().family() == 4 ? (20 <= self.blockSize && self.blockSize <= 30) : 116 <= self.blockSize)",message="blockSize must be 20 to 30 for IPv4 and 116 to 126 for IPv6"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).prefixLength() <= (has(self.blockSize) ? self.blockSize : (cidr(self.cidr).ip().family() == 4 ? 26 : 122))",message="the cidr is smaller than one block"
type IPPoolSpec struct {
	// The addresses, of one family. Cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the cidr of a pool cannot be changed"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().isGlobalUnicast()",message="expected unicast addresses that are routed"
	CIDR CIDR `json:"cidr"`

	// Prefix length of its blocks. Unset: 26 for IPv4 and 122 for IPv6, which are 64 addresses. Cannot be changed.
	// +optional
	// +kubebuilder:validation:Minimum=20
	// +kubebuilder:validation:Maximum=126
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the size of blocks cannot be changed"
	BlockSize *int32 `json:"blockSize,omitempty"`

	// Labels of the nodes that claim blocks of the pool. Unset or empty: all nodes.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// Labels of the namespaces whose pods get addresses from the pool. Unset or empty: all namespaces.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Whether no address is allocated and no block claimed; pods keep their addresses.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// Whether a node uses only addresses of its own blocks, except for static addresses of pods. If false, and if the
	// WeftConfig allows borrowing, a node may borrow single addresses from blocks of other nodes when no block is left.
	// +optional
	// +kubebuilder:default=true
	StrictAffinity *bool `json:"strictAffinity,omitempty"`
}

// IPPoolStatus is the observed state of a pool.
type IPPoolStatus struct {
	// Generation of the object at which the conditions were observed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Number of blocks in the pool.
	// +optional
	Blocks int64 `json:"blocks,omitempty"`

	// Number of blocks that nodes have claimed.
	// +optional
	ClaimedBlocks int64 `json:"claimedBlocks,omitempty"`

	// Number of addresses that pods have.
	// +optional
	UsedAddresses int64 `json:"usedAddresses,omitempty"`

	// Ready: nodes may claim blocks. Conflict: the pool overlaps an older one.
	// +optional
	Conditions Conditions `json:"conditions,omitempty"`
}

// IPPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPPool `json:"items"`
}
