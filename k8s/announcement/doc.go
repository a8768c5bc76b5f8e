// Package announcement writes the NodeNetwork of this node, and decides what this node accepts of the NodeNetworks of other nodes.
//
// The agent of a node writes its NodeNetwork, so with a stolen token of an agent an attacker announces anything. A route needs a grant by an
// object that this token cannot write, or cannot write in another node's name:
//
//	tunnel endpoint   an InternalIP of the Node
//	default network   the Node's podCIDRs, or an IPBlock of the node that is cut from a known IPPool
//	custom network    an IPBlock of the node that is cut from the known CustomNetwork
//	single address    an IPBlock of another node that offers the address and lends it to the node
//
// Addresses that no pod can have are always rejected. Validation has no clock and no I/O: it does not depend on the order of the objects.
package announcement
