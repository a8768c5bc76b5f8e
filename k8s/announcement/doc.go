// Package announcement decides what this node accepts of the NodeNetworks of other nodes.
//
// A NodeNetwork is written by the agent of its node, so a stolen agent token announces what it wants. A route needs a grant
// by an object that the agent's token cannot write, or cannot write in another node's name:
//
//	tunnel endpoint   an InternalIP of the Node
//	default network   the Node's podCIDRs, or an IPBlock of the node that is cut from a known IPPool
//	custom network    an IPBlock of the node that is cut from the known CustomNetwork
//	single address    an IPBlock of another node that offers the address and lends it to the node
//
// Addresses that no pod can have are rejected whatever grants them. The package has no clock and no I/O: the same cluster
// gives the same answer, in whichever order its objects arrived.
package announcement
