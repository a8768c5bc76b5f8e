// Package v1 has the types of the API group contivpp.io, version v1.
//
// The manifests in k8s/manifests/crds and the deep copies are generated from these sources: see `make generate`. The
// comments of fields are the descriptions that `kubectl explain` shows.
//
// +kubebuilder:object:generate=true
// +groupName=contivpp.io
package v1
