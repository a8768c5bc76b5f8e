package pod

import (
	"cmp"
	"fmt"
	"net/netip"
)

// Block is a part of a pool of several nodes, or of a custom network's addresses, that this node gives out addresses of; or
// a single address that another node lends.
type Block struct {
	Network  string       `json:"network,omitempty"` // a custom network's name; "" or "default": it is of a pool of the network default
	Prefix   netip.Prefix `json:"prefix"`
	Withheld []netip.Addr `json:"withheld,omitempty"` // of its addresses, those that other nodes may give out
}

// String is what people call the block, and what it is kept under.
func (b Block) String() string { return cmp.Or(b.Network, DefaultNetwork) + "/" + b.Prefix.String() }

// SetBlocks makes these the blocks of this node, in place of those before. One of which an address is used, or cools down,
// gives out no more of them and stays; a later event removes it.
type SetBlocks struct {
	Blocks []Block
	From   string // who says so

	// Filled in by the handlers: by the block's String, why it is not given out; and the blocks that stay though they
	// are not wanted any more.
	Refused  map[string]string
	Draining []Block
}

// String names the event as logs and records show it.
func (e *SetBlocks) String() string {
	return fmt.Sprintf("set %d blocks (from %s)", len(e.Blocks), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetBlocks) Key() string { return "blocks" }

// BestEffort lets the blocks that can be given out be given out.
func (e *SetBlocks) BestEffort() bool { return true }
