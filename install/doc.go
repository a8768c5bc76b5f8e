// Package install puts the CNI plugin and its configuration on a node, and takes them away again, so that the container
// runtime sees a sound node at every moment.
//
// The order is what matters: the program first, tried before anybody can start it; then the question, by that program,
// whether the agent would wire a pod; and only then the configuration, by which the node becomes ready. Each file appears
// whole, by a rename within its directory. Uninstalling goes the other way.
package install
