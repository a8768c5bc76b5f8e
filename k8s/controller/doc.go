// Package controller writes what the cluster says of its networks and pools: there is one writer in the whole cluster, the
// replica that holds a lease.
//
// The API server does not know which replica leads, and a request of one that led before may arrive late. So nothing
// relies on there being one: each write is of the version that was read, and a VXLAN identifier belongs to a network once
// it is in the ledger, which is one object:
//
//	ledger (ConfigMap) --read--> fresh list of networks --choose--> ledger, if it is still of that version --> status.vni
//
// Where it is asked to, it also takes a taint off nodes that serve pods, of which their agents have no right to.
//
// Nodes take a network's identifier from spec.vni, else from status.vni.
package controller
