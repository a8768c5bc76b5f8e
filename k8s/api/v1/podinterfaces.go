package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodInterfaces lists the interfaces of a pod for users. It has the name and namespace of the pod, which owns it. The
// agent of the pod's node writes it after the ADD. No component makes decisions by it.
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

	// The node of the pod.
	// +required
	Node NodeName `json:"node"`

	// UID of the pod.
	// +required
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID"`

	// ID of the sandbox of the interfaces.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Sandbox string `json:"sandbox,omitempty"`

	// The interfaces as one line, because kubectl get shows only the first element of a list.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Summary string `json:"summary,omitempty"`

	// The interfaces that Weft created, the main interface first.
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

	// Type of the interface: tap, veth or memif; ipam for an interface of another plugin with addresses of Weft.
	// +required
	// +kubebuilder:validation:MaxLength=15
	Type string `json:"type"`

	// The network of the interface.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Network string `json:"network"`

	// MAC address of the pod's end.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	MAC string `json:"mac,omitempty"`

	// MTU in bytes.
	// +optional
	MTU int32 `json:"mtu,omitempty"`

	// Addresses with prefix length.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	Addresses []string `json:"addresses,omitempty"`

	// The container that has the memif; unset for other types.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container,omitempty"`
}

// PodInterfacesList is a list of the interfaces of pods.
//
// +kubebuilder:object:root=true
type PodInterfacesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodInterfaces `json:"items"`
}
