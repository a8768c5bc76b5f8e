package npwg

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MultiNetworkPolicy is a NetworkPolicy for the interfaces of pods on the networks of its annotation
// k8s.v1.cni.cncf.io/policy-for.
//
// Its version is v1beta1: https://github.com/k8snetworkplumbingwg/multi-networkpolicy
//
// +kubebuilder:object:root=true
type MultiNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              networkingv1.NetworkPolicySpec `json:"spec"` // has the same fields
	Unreadable        []string                       `json:"-"`    // why parts of Spec are replaced by invalid ones
}

// MultiNetworkPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type MultiNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MultiNetworkPolicy `json:"items"`
}

// PolicyGroupVersion returns the group with the version of policies.
func PolicyGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1beta1"}
}

// AddPoliciesToScheme makes the kinds of policies known to a scheme.
func AddPoliciesToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(PolicyGroupVersion(), &MultiNetworkPolicy{}, &MultiNetworkPolicyList{})
	metav1.AddToGroupVersion(s, PolicyGroupVersion())
	return nil
}
