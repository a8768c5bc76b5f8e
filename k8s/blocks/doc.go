// Package blocks cuts the cluster's pools into blocks that nodes claim, each for itself and ahead of need.
//
// A block is an object whose name is made from its network and CIDR, so the API server lets one node only create it.
// A node gives out addresses of a block only while the API server has it as the node's:
//
//	            claim: create, or compare and swap             Local.Add
//	nobody's ------------------------------------> the node's -----------> given out
//	   ^                                               |  ^                    |
//	   |        delete this very incarnation           |  |  somebody has one  |
//	   +-----------------------------------------------+  +--------------------+  Local.Remove: all are free
package blocks
