package ipnet

import (
	"github.com/weftnet/weft/ipnet/attach"
	"github.com/weftnet/weft/ipnet/mesh"
	"github.com/weftnet/weft/ipnet/networks"
	"github.com/weftnet/weft/pod"
)

// Saved is what an earlier run left.
type Saved struct {
	attach.Saved

	Networks  []networks.SavedNetwork
	Nodes     []mesh.SavedNode
	Externals []pod.External
	Blocks    []networks.SavedBlock
	Pools     *networks.SavedPools // nil: the pools of the configuration
}

// Restore takes over what an earlier run left, before the first event; the start-up resync then makes it desired. It
// may be called again, with more. Attachments take precedence over leases: a pod's address is its own, even if a lease
// names another holder. What cannot be restored is logged and left out, the rest is restored.
func (n *Network) Restore(s Saved) {
	n.Networks.Restore(s.Pools, s.Blocks, s.Networks)
	n.Mesh.Restore(s.Nodes)
	n.Externals.Restore(s.Externals)
	n.occupy()
	n.Pods.Restore(s.Saved)
}
