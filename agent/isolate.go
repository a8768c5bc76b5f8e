package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/agent/health"
	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// takenBlock is a block that another node owns while pods of this node use its addresses. It happens if the Node object of this node was
// missing for longer than the grace period after which the controller frees its blocks.
type takenBlock struct {
	blocks.Block
	by string // the node that owns it now
}

// blockTaken queues a block for [Agent.isolating]. It reports whether the pods that use the block are isolated already, durably. The
// keeper calls it at each step until then.
func (a *Agent) blockTaken(b blocks.Block, by string) (isolated bool) {
	t := takenBlock{b, by}
	if len(a.replayer.exposed(t)) == 0 && a.quarantine.isDurable() && !a.network.WithholdsOthers(a.quarantine.keys()) {
		return true
	}
	select {
	case a.taken <- t:
	default:
	}
	return false
}

// isolating disconnects pods whose addresses another node owns, until ctx ends. It starts after the first resync: the event loop holds
// other events back until then.
func (a *Agent) isolating(ctx context.Context) error {
	if err := a.health.Await(ctx, health.Started); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case t := <-a.taken:
			a.replayer.isolate(ctx, t)
		}
	}
}

// isolate quarantines the attachments that use addresses of a taken block. Deleting their pods ends the quarantine.
func (r *replayer) isolate(ctx context.Context, t takenBlock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, q := r.agent, r.agent.quarantine
	found := r.exposed(t)
	q.put(ctx, found...)
	if err := r.withhold(ctx, q.keys(), fmt.Sprintf("isolate %d pods whose addresses node %s owns", len(found), t.by)); err != nil {
		a.log.Error("pods whose addresses another node owns are still connected", "block", t.Prefix, "node", t.by, "err", err)
	}
	select {
	case a.blocksChanged <- struct{}{}: // the cluster is told
	default:
	}
}

// exposed returns a quarantine entry for each attachment that uses the block and is not quarantined yet.
func (r *replayer) exposed(t takenBlock) (found []suspicion) {
	for _, at := range r.agent.pods.Attachments() {
		address := t.addressOf(&at)
		if s, known := r.agent.quarantine.find(at.Key); !address.IsValid() || known && s.State == stateQuarantined {
			continue
		}
		found = append(found, suspicion{
			Key: at.Key, Pod: at.Pod, State: stateQuarantined, Taken: true, Since: time.Now().UTC(),
			Reason: fmt.Sprintf("node %[3]s owns its address %[1]s (block %[2]s) now; delete the pod", address, t.Prefix, t.by),
		})
	}
	return found
}

// addressOf returns the attachment's address from the block, or the zero address.
func (t takenBlock) addressOf(at *pod.Attachment) netip.Addr {
	for _, in := range at.Interfaces {
		if in.Network != t.Network {
			continue
		}
		if i := slices.IndexFunc(in.Addresses, func(p netip.Prefix) bool { return t.Prefix.Contains(p.Addr()) }); i >= 0 {
			return in.Addresses[i].Addr()
		}
	}
	return netip.Addr{}
}
