// Package k8s is the node's view of the cluster: what the API server says about this node, its pods, and the networks and
// pools of all.
//
// Everything comes from watches, so that no caller waits for the API server; the exception is a pod whose annotations no
// watch has shown yet. What is handed on is always the whole state, never a change of it.
package k8s
