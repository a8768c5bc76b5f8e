package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WeftConfigName is the name of the one WeftConfig that counts.
const WeftConfigName = "default"

// WeftConfig holds the switches that all nodes obey at once. There is one, named default; without it all switches stand
// as if it were empty.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=weft
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Borrowing",type=boolean,JSONPath=`.spec.addresses.borrowing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="the one WeftConfig is named default"
type WeftConfig struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The switches.
	// +optional
	Spec WeftConfigSpec `json:"spec,omitempty"`
}

// WeftConfigSpec are the switches.
type WeftConfigSpec struct {
	// No pod is wired any more: CNI ADD answers "try again later", STATUS "not available". Pods that run are not touched,
	// and those that end are unwired.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// Why, for who reads the error of a pod that waits.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	PausedReason string `json:"pausedReason,omitempty"`

	// How nodes come by addresses.
	// +optional
	Addresses AddressesSpec `json:"addresses,omitempty"`

	// Whether each node writes a PodInterfaces for each of its pods.
	// +optional
	PodInterfaces bool `json:"podInterfaces,omitempty"`
}

// AddressesSpec says how nodes come by addresses. The water marks count the addresses of one pool that a node could give
// out at once; where lowWater is not said, warmBlocks may count blocks in their place.
//
// +kubebuilder:validation:XValidation:rule="!has(self.lowWater) || !has(self.highWater) || self.highWater >= self.lowWater",message="highWater is below lowWater"
type AddressesSpec struct {
	// With fewer free addresses than this a node claims a block. Default 16.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	LowWater *int32 `json:"lowWater,omitempty"`

	// With this many free addresses beside it, an empty block is released. Default 48.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	HighWater *int32 `json:"highWater,omitempty"`

	// Where lowWater is not said: both water marks are as many addresses as so many blocks of the pool have. Default 0: they
	// are not.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	WarmBlocks *int32 `json:"warmBlocks,omitempty"`

	// How long a block is empty before it is released. Default 5m.
	// +optional
	ReleaseAfter *metav1.Duration `json:"releaseAfter,omitempty"`

	// How many blocks of one pool a node may have. Default 64.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBlocks *int32 `json:"maxBlocks,omitempty"`

	// The cluster's ranges of pods' addresses, as kube-proxy and the network around the nodes know them. IPPools should be
	// parts of them: to others, pods outside are strangers. A family without a range is not judged.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	ClusterCIDRs []CIDR `json:"clusterCIDRs,omitempty"`

	// What becomes of an IPPool that is not within clusterCIDRs. Warn: nodes use it and say so in their logs. Refuse: no
	// address of it is given any more and no block claimed; pods keep what they have.
	// +optional
	// +kubebuilder:default=Warn
	OutsideClusterCIDRs OutsidePolicy `json:"outsideClusterCIDRs,omitempty"`

	// Whether nodes may borrow single addresses from each other's blocks, from pools without strict affinity, when no
	// block is left.
	// +optional
	Borrowing bool `json:"borrowing,omitempty"`
}

// OutsidePolicy says what becomes of a pool outside of the cluster's ranges.
//
// +kubebuilder:validation:Enum=Warn;Refuse
type OutsidePolicy string

// The policies.
const (
	OutsideWarn   OutsidePolicy = "Warn"
	OutsideRefuse OutsidePolicy = "Refuse"
)

// WeftConfigList is a list of switches.
//
// +kubebuilder:object:root=true
type WeftConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WeftConfig `json:"items"`
}
