// Package policy compiles network policies into lists of rules for the interfaces of pods.
//
//	pods, namespaces --\
//	                    groups (one for each selector) --> fragments (one for each policy) --> lists (one for each content)
//	policies ----------/
//
// An [Engine] has the objects of a cluster (cluster, policyTable, services), the pods that selectors select
// (membership), the pods to compile (backlog), and the lists within their limits (budget). A change marks the local
// interfaces whose rules may differ; [Engine.CompileNext] compiles these only. A new pod costs work for the selectors
// that may match its labels and for the policies that have it as a subject or peer, however large the cluster is.
//
// The package is pure: no I/O, no clock, no goroutine. It reads NetworkPolicies (networking.k8s.io/v1),
// MultiNetworkPolicies (k8s.cni.cncf.io/v1beta1) and AdminNetworkPolicies with their baseline
// (policy.networking.k8s.io/v1alpha1).
package policy
