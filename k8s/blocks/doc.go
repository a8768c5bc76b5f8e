// Package blocks cuts the cluster's pools into blocks that nodes claim, each for itself and ahead of need.
//
// The name of a block's object follows from its network and CIDR, so the API server lets only one node create it. A node allocates addresses
// of a block only while the block belongs to it in the API server:
//
//	           claim: create, or compare and swap              Local.Add
//	unclaimed ------------------------------------> the node's -----------> in use
//	   ^                                               |  ^                    |
//	   |         delete, if UID and version match      |  |  an address is held |
//	   +-----------------------------------------------+  +--------------------+  Local.Remove: all are free
package blocks
