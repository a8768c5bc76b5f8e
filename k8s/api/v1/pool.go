package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// IPPool is a range of addresses for pods' main interfaces. Nodes claim it block by block.
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name may have 63 characters at most"
type IPPool struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the pool is to be.
	// +required
	Spec IPPoolSpec `json:"spec"`

	// What is observed of the pool.
	// +optional
	Status IPPoolStatus `json:"status,omitempty"`
}

// IPPoolSpec is what a pool is to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.blockSize) == has(oldSelf.blockSize)",message="the size of blocks cannot be changed"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !has(self.blockSize) || (cidr(self.cidr).ip().family() == 4 ? (20 <= self.blockSize && self.blockSize <= 30) : 116 <= self.blockSize)",message="blockSize must be 20 to 30 for IPv4 and 116 to 126 for IPv6"
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).prefixLength() <= (has(self.blockSize) ? self.blockSize : (cidr(self.cidr).ip().family() == 4 ? 26 : 122))",message="the cidr is smaller than one block"
type IPPoolSpec struct {
	// The addresses, of one family. Cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the cidr of a pool cannot be changed"
	CIDR CIDR `json:"cidr"`

	// Prefix length of its blocks. Unset: 26 for IPv4 and 122 for IPv6, which are 64 addresses. Cannot be changed.
	// +optional
	// +kubebuilder:validation:Minimum=20
	// +kubebuilder:validation:Maximum=126
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the size of blocks cannot be changed"
	BlockSize *int32 `json:"blockSize,omitempty"`

	// Nodes that take addresses from the pool, by their labels. Unset or empty: all of them.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// Pods of which namespaces get addresses from the pool, by the namespaces' labels. Unset or empty: all of them.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// No address is given any more and no block claimed; pods keep what they have.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// A node uses addresses of its own blocks only, except for static addresses of pods. With false, and borrowing allowed in the WeftConfig, a node for
	// which no block is left may borrow single addresses from the blocks of others.
	// +optional
	// +kubebuilder:default=true
	StrictAffinity *bool `json:"strictAffinity,omitempty"`
}

// IPPoolStatus is what is observed of a pool.
type IPPoolStatus struct {
	// Generation of the object that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Number of blocks that the pool has in all.
	// +optional
	Blocks int64 `json:"blocks,omitempty"`

	// Number of its blocks that a node has.
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
