package pod

import (
	"fmt"
	"net/netip"
)

// External is an interface of this node that connects a network with what is outside of the cluster.
type External struct {
	Name      string         `json:"name"`
	Node      string         `json:"node,omitempty"`      // name of this node: its MAC there is no other node's
	Network   string         `json:"network"`             // "default" or a custom network's name
	Interface string         `json:"interface"`           // name of the node's link
	VLAN      int            `json:"vlan,omitempty"`      // 1 to 4094: of the link only its frames; 0: no VLAN
	Addresses []netip.Prefix `json:"addresses,omitempty"` // the dataplane's own there, on a network that is routed
}

// SetExternals makes these the interfaces to the outside, in place of those before. One that cannot be costs the others
// nothing.
type SetExternals struct {
	Externals []External
	From      string // who says so

	// Refused is filled in by the handlers: by name, why it was left out.
	Refused map[string]string
}

// String names the event as logs and records show it.
func (e *SetExternals) String() string {
	return fmt.Sprintf("set %d external interfaces (from %s)", len(e.Externals), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetExternals) Key() string { return "externals" }

// BestEffort lets those interfaces be connected that can be.
func (e *SetExternals) BestEffort() bool { return true }
