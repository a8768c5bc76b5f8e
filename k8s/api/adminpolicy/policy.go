package adminpolicy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	adminv1 "sigs.k8s.io/network-policy-api/apis/v1alpha1"
)

// AdminNetworkPolicy is a policy for the pods of all namespaces, which comes before their NetworkPolicies.
//
// +kubebuilder:object:root=true
type AdminNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              adminv1.AdminNetworkPolicySpec `json:"spec"`
	Unreadable        []string                       `json:"-"` // why parts of Spec are replaced by invalid ones
}

// AdminNetworkPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type AdminNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AdminNetworkPolicy `json:"items"`
}

// BaselineAdminNetworkPolicy is a policy for the pods of all namespaces, which comes after their NetworkPolicies.
//
// +kubebuilder:object:root=true
type BaselineAdminNetworkPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              adminv1.BaselineAdminNetworkPolicySpec `json:"spec"`
	// why parts of Spec are replaced by invalid ones
	Unreadable []string `json:"-"`
}

// BaselineAdminNetworkPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type BaselineAdminNetworkPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BaselineAdminNetworkPolicy `json:"items"`
}

// GroupVersion returns the group with its version.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion(adminv1.GroupVersion) }

// AddToScheme makes the group's kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&AdminNetworkPolicy{}, &AdminNetworkPolicyList{}, &BaselineAdminNetworkPolicy{},
		&BaselineAdminNetworkPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
