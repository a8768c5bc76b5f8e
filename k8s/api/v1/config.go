package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WeftConfigName is the name of the only valid WeftConfig.
const WeftConfigName = "default"

// WeftConfig configures all nodes; changes take effect at once. Its only object is named default. Without it all fields
// have their defaults.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=weft
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Borrowing",type=boolean,JSONPath=`.spec.addresses.borrowing`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="the only WeftConfig is named default"
type WeftConfig struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The configuration.
	// +optional
	Spec WeftConfigSpec `json:"spec,omitempty"`
}

// WeftConfigSpec is the configuration of all nodes.
type WeftConfigSpec struct {
	// Whether nodes connect no new pods: CNI ADD fails with "try again later", STATUS with "not available". Running
	// pods keep their interfaces, and deleted pods are disconnected.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// The reason, shown in the error of ADD.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	PausedReason string `json:"pausedReason,omitempty"`

	// How nodes claim and release blocks of addresses.
	// +optional
	Addresses AddressesSpec `json:"addresses,omitempty"`

	// Whether each node writes a PodInterfaces for each of its pods. Default true.
	// +optional
	PodInterfaces *bool `json:"podInterfaces,omitempty"`

	// Whether edits of the annotations contivpp.io/custom-if, contivpp.io/custom-if-options and
	// k8s.v1.cni.cncf.io/networks of a running pod add and remove its interfaces. Default true.
	// +optional
	InterfaceChanges *bool `json:"interfaceChanges,omitempty"`
}

// AddressesSpec configures how nodes claim and release blocks. The water marks count the free addresses that a node has
// of one pool. If lowWater is unset, warmBlocks may set both in blocks.
//
// +kubebuilder:validation:XValidation:rule="!has(self.lowWater) || !has(self.highWater) || self.highWater >= self.lowWater",message="highWater is below lowWater"
type AddressesSpec struct {
	// A node with fewer free addresses claims a block. Default 16.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	LowWater *int32 `json:"lowWater,omitempty"`

	// An empty block is released if the node has this many free addresses without it. Default 48.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	HighWater *int32 `json:"highWater,omitempty"`

	// If lowWater is unset: both water marks are the number of addresses in this many blocks of the pool. Default 0:
	// unused.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	WarmBlocks *int32 `json:"warmBlocks,omitempty"`

	// How long a block must be empty before it is released. Default 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,5}(\.[0-9]{1,9})?(ns|us|ms|s|m|h))+)$`
	ReleaseAfter *metav1.Duration `json:"releaseAfter,omitempty"`

	// Maximum number of blocks of one pool on a node. Default 64.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	MaxBlocks *int32 `json:"maxBlocks,omitempty"`

	// The cluster's pod CIDRs, as configured in kube-proxy and in the network around the nodes. IPPools should be
	// within them: other components do not treat addresses outside as pods. A family without a CIDR is not checked.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	ClusterCIDRs []CIDR `json:"clusterCIDRs,omitempty"`

	// What nodes do with an IPPool that is not within clusterCIDRs. Warn: use it and log a warning. Refuse: allocate no
	// address and claim no block; pods keep their addresses.
	// +optional
	// +kubebuilder:default=Warn
	OutsideClusterCIDRs OutsidePolicy `json:"outsideClusterCIDRs,omitempty"`

	// Whether nodes may borrow single addresses from each other's blocks, from pools without strict affinity, when no
	// block is left.
	// +optional
	Borrowing bool `json:"borrowing,omitempty"`
}

// OutsidePolicy is the policy for pools outside of clusterCIDRs.
//
// +kubebuilder:validation:Enum=Warn;Refuse
type OutsidePolicy string

// The policies.
const (
	OutsideWarn   OutsidePolicy = "Warn"
	OutsideRefuse OutsidePolicy = "Refuse"
)

// WeftConfigList is a list of configurations.
//
// +kubebuilder:object:root=true
type WeftConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WeftConfig `json:"items"`
}
