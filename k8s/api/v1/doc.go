// Package v1 holds the objects of the API group contivpp.io, version v1: what the nodes of a cluster agree on.
//
// The manifests in k8s/manifests/crds and the deep copies are generated from these sources: see `make generate`. The
// comments of fields become their descriptions, so they are written for who reads `kubectl explain`.
//
// +kubebuilder:object:generate=true
// +groupName=contivpp.io
package v1
