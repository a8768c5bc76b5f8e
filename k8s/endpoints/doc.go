// Package endpoints keeps the EndpointSlices of Services that ask for backends on interfaces which their pods choose.
//
// Kubernetes makes none for a Service without a selector, so a controller may: these are as its own would be, but for the
// addresses, which are those of the interface that a pod's annotation names.
package endpoints
