// Package k8stest serves the part of Kubernetes' API that Weft uses, in the test's process: objects of any kind, lists,
// watches, selectors, resource versions, preconditions, and the ways in which a real API server fails.
//
// It knows no schema: what a CRD refuses and what RBAC forbids only a real API server shows.
package k8stest
