// Package controller writes the status of the cluster's networks, pools and external interfaces. The replica that holds a lease leads.
//
// The API server does not know the leader, and a request of an earlier leader may arrive late. So correctness does not depend on the lease:
// each write has the resource version that was read, and a network owns a VNI once it is in the ledger, which is one object:
//
//	ledger (ConfigMap) --read--> fresh list of networks --choose--> ledger, if its version has not changed --> status.vni
//
// Nodes use spec.vni of a network, else status.vni. The controller optionally removes a taint from nodes that serve pods: their agents have
// no right to.
package controller
