package pod

import (
	"fmt"
	"net/netip"
)

// Pool is a range of addresses of the network default, of one family.
type Pool struct {
	Name       string       `json:"name"`
	Prefix     netip.Prefix `json:"prefix"`
	Blocks     bool         `json:"blocks,omitempty"`     // it is several nodes', and this one has blocks of it
	Disabled   bool         `json:"disabled,omitempty"`   // no address is given out any more
	Namespaces []string     `json:"namespaces,omitempty"` // of Kubernetes, whose pods may have its addresses; empty: all
}

// SetPools makes these the pools of the network default, in place of those before. One of which an address is used stays
// as it was; it gives out no more if it is not wanted any more.
type SetPools struct {
	Pools          []Pool              // in the order in which they are tried
	NamespacePools map[string][]string // by namespace of Kubernetes, the names of the pools for its pods
	NodePools      []string            // names of the pools for pods whose namespace has none
	From           string              // who says so

	// Refused is filled in by the handlers: by pool, why it is not as the event wants it.
	Refused map[string]string
}

// String names the event as logs and records show it.
func (e *SetPools) String() string {
	return fmt.Sprintf("set %d pools (from %s)", len(e.Pools), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetPools) Key() string { return "pools" }

// BestEffort lets the pools that can change change.
func (e *SetPools) BestEffort() bool { return true }
