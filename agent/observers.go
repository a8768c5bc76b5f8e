package agent

import (
	"github.com/weftnet/weft/agent/chain"
	"github.com/weftnet/weft/agent/occupied"
	"github.com/weftnet/weft/agent/owners"
	"github.com/weftnet/weft/podmanager"
)

// observers follow the attachments of this node. They must not block.
type observers struct {
	chains   *chain.Tracker
	devices  *devices
	owners   *owners.Index
	occupied *occupied.Watcher
	cluster  *membership
}

// observe passes the outcome of an attachment to all observers.
func (b *observers) observe(o podmanager.Outcome) {
	b.chains.Observe(o)
	b.devices.observe(o)
	b.owners.Observe(o)
	b.occupied.Observe(o)
	if b.cluster.member != nil {
		b.cluster.member.Observe(o)
	}
}
