// Package adminpolicy holds what Weft reads of AdminNetworkPolicies and BaselineAdminNetworkPolicies, version v1alpha1
// of the network-policy-api: https://network-policy-api.sigs.k8s.io
//
// +kubebuilder:object:generate=true
// +groupName=policy.networking.k8s.io
package adminpolicy
