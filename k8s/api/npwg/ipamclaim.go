package npwg

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AnnotationSeed is an annotation of a claim with the text from which the MAC of its interface is derived, instead of
// the claim's UID.
const AnnotationSeed = "contivpp.io/mac-seed"

// IPAMClaim holds the addresses of an interface of a pod, also while the pod is away.
//
// Its version is v1alpha1: https://github.com/k8snetworkplumbingwg/ipamclaims
//
// +kubebuilder:object:root=true
type IPAMClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              IPAMClaimSpec   `json:"spec"`
	Status            IPAMClaimStatus `json:"status,omitzero"`
	Unreadable        []string        `json:"-"` // why parts of Spec and Status are empty although the object has them
}

// IPAMClaimSpec names the interface.
type IPAMClaimSpec struct {
	Network   string `json:"network"`
	Interface string `json:"interface"`
}

// IPAMClaimStatus has the addresses.
type IPAMClaimStatus struct {
	IPs []string `json:"ips"` // of both families, with or without prefix lengths
}

// IPAMClaimList is a list of claims.
//
// +kubebuilder:object:root=true
type IPAMClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAMClaim `json:"items"`
}

// ClaimGroupVersion returns the group with the version of claims.
func ClaimGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1alpha1"}
}

// AddClaimsToScheme makes the kinds of claims known to a scheme.
func AddClaimsToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(ClaimGroupVersion(), &IPAMClaim{}, &IPAMClaimList{})
	metav1.AddToGroupVersion(s, ClaimGroupVersion())
	return nil
}
