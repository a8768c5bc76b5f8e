package npwg

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NetworkAttachmentDefinition names a CNI configuration.
//
// +kubebuilder:object:root=true
type NetworkAttachmentDefinition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NetworkAttachmentDefinitionSpec `json:"spec"`
	Unreadable        string                          `json:"-"` // why Spec is empty although the object has one
}

// NetworkAttachmentDefinitionSpec holds the configuration.
type NetworkAttachmentDefinitionSpec struct {
	Config string `json:"config,omitempty"` // JSON of CNI: one plugin, or a list of them; empty: a file on the node
}

// NetworkAttachmentDefinitionList is a list of definitions.
//
// +kubebuilder:object:root=true
type NetworkAttachmentDefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkAttachmentDefinition `json:"items"`
}

// GroupVersion returns the group with its version.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}
}

// AddToScheme makes the group's kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &NetworkAttachmentDefinition{}, &NetworkAttachmentDefinitionList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
