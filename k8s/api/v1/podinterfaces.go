package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodInterfaces is what a pod got, for people to look at. Its name and namespace are the pod's, which owns it; the agent
// of the pod's node writes it after the pod was wired. Nothing is decided by it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=podinterfaces,singular=podinterfaces,shortName=podif,categories=weft
// +kubebuilder:selectablefield:JSONPath=`.node`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.node`
// +kubebuilder:printcolumn:name="Interfaces",type=string,JSONPath=`.summary`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodInterfaces struct {
	metav1.TypeMeta `json:",inline"`

	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The node that the pod runs on.
	// +required
	Node NodeName `json:"node"`

	// UID of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID"`

	// Id of the sandbox that the interfaces are in.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Sandbox string `json:"sandbox,omitempty"`

	// The interfaces in one line. kubectl get shows only the first element of a list.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Summary string `json:"summary,omitempty"`

	// The interfaces that Weft made, the main one first.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Interfaces []PodInterface `json:"interfaces,omitempty"`
}

// PodInterface is one interface of a pod.
type PodInterface struct {
	// Name in the pod.
	// +required
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name"`

	// Type of the interface: tap, veth, memif, or ipam for one of another plugin with addresses of Weft.
	// +required
	// +kubebuilder:validation:MaxLength=15
	Type string `json:"type"`

	// The network that it is in.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Network string `json:"network"`

	// MAC address of the pod's end.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	MAC string `json:"mac,omitempty"`

	// Bytes that a packet may have.
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// Addresses with prefix length.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	Addresses []string `json:"addresses,omitempty"`

	// The container that has the interface, of type memif.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`
}

// PodInterfacesList is a list of what pods got.
//
// +kubebuilder:object:root=true
type PodInterfacesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodInterfaces `json:"items"`
}
