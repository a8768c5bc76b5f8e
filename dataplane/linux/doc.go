// Package linux realises the desired values of the machine's kernel: what stands in network namespaces, and files.
//
// A namespace is opened for the time of one batch only: an open socket or descriptor would keep it alive after its pod.
package linux
