package pod

import (
	"fmt"
	"net/netip"
)

// Node is a node of the cluster as the others' tunnels and routes need it.
type Node struct {
	ID        uint32       `json:"id"`                  // 1 to 65535, of one node only; 0: not known yet, and nothing leads there
	Name      string       `json:"name"`                // of Kubernetes
	Addresses []netip.Addr `json:"addresses,omitempty"` // at which its dataplane is reached, at most one a family
	Parts     []NodePart   `json:"parts,omitempty"`     // of networks, by name
}

// NodePart is what of a network is on a node.
type NodePart struct {
	Network string         `json:"network"`          // "default" or a custom network's name
	Blocks  []netip.Prefix `json:"blocks,omitempty"` // addresses that its pods have
}

// SetNodes makes these the other nodes of the cluster, in place of those before. Nodes that cannot be reached cost nobody
// but themselves.
type SetNodes struct {
	Self  Node
	Nodes []Node // the others
	From  string // who says so

	// Refused is filled in by the handlers: by node, why it, or some block of it, was left out.
	Refused map[string]string
}

// String names the event as logs and records show it.
func (e *SetNodes) String() string {
	return fmt.Sprintf("set %d other nodes (from %s)", len(e.Nodes), e.From)
}

// Key makes only the newest of those that wait count.
func (e *SetNodes) Key() string { return "nodes" }

// BestEffort lets the nodes that can be reached be reached.
func (e *SetNodes) BestEffort() bool { return true }
