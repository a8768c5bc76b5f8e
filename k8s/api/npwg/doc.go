// Package npwg holds what Weft reads of NetworkAttachmentDefinitions, the objects of the Network Plumbing Working Group
// by which Multus and others name networks.
//
// The multi-net specification, version 1.3: https://github.com/k8snetworkplumbingwg/multi-net-spec
//
// +kubebuilder:object:generate=true
// +groupName=k8s.cni.cncf.io
package npwg
