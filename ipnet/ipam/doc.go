// Package ipam gives out the addresses of a node's pools, and takes them back only after they have cooled down.
//
// An address passes these states; Restore enters where the durable record says:
//
//	         Lease            Commit           Release
//	free  ----------> leased --------> used -----------> cooling
//	  ^                 |                                    |
//	  |<---- Undo ------+                                    |
//	  +<-------------------- the cool-down has passed -------+
//
// The address that a node keeps for itself is internal from the start and never leaves that state.
package ipam
