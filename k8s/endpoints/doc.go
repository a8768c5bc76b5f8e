// Package endpoints keeps the EndpointSlices of Services that select pods by an annotation, with the addresses of an interface that the pods
// name. Kubernetes makes no slices for a Service without a selector. Except for the addresses, these slices are like those of Kubernetes.
package endpoints
