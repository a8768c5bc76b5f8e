package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weftnet/weft/k8s/blocks"
	"github.com/weftnet/weft/pod"
)

// takenBlock is a block that is another node's now although pods of this one have addresses of it: the node was away for longer than
// the grace after which its blocks are freed.
type takenBlock struct {
	blocks.Block
	by string // node
}

// blockTaken hands a block on to [Agent.isolating], and reports whether the pods with addresses of it are isolated. The keeper tells of
// it again and again.
func (a *Agent) blockTaken(b blocks.Block, by string) (isolated bool) {
	t := takenBlock{b, by}
	if len(a.replayer.exposed(t)) == 0 && !a.network.WithholdsOthers(a.quarantine.keys()) {
		return true
	}
	select {
	case a.taken <- t:
	default:
	}
	return false
}

// isolating takes pods with addresses of other nodes from the dataplane, until ctx ends. Before the first resync nothing is in it.
func (a *Agent) isolating(ctx context.Context) error {
	if err := a.health.await(ctx, conditionStarted); err != nil {
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

// isolate quarantines the attachments with addresses of a block that another node has. It is for their pods to be deleted.
func (r *replayer) isolate(ctx context.Context, t takenBlock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, q := r.agent, r.agent.quarantine
	found := r.exposed(t)
	if len(found) > 0 {
		q.put(ctx, found...)
	}
	if err := r.withhold(ctx, q.keys(), fmt.Sprintf("isolate %d pods with addresses of node %s", len(found), t.by)); err != nil {
		a.log.Error("pods with addresses of another node are not isolated", "block", t.Prefix, "node", t.by, "err", err)
	}
	select {
	case a.blocksChanged <- struct{}{}: // the cluster is told
	default:
	}
}

// exposed are the attachments with addresses of the block that are not quarantined, as they are to be.
func (r *replayer) exposed(t takenBlock) (found []suspicion) {
	for _, at := range r.agent.pods.Attachments() {
		address := t.addressOf(&at)
		if s, known := r.agent.quarantine.find(at.Key); !address.IsValid() || known && s.State == stateQuarantined {
			continue
		}
		found = append(found, suspicion{
			Key: at.Key, Pod: at.Pod, State: stateQuarantined, Taken: true, Since: time.Now().UTC(),
			Reason: fmt.Sprintf("its address %s is of block %s, which is node %s's now: delete the pod", address, t.Prefix, t.by),
		})
	}
	return found
}

// addressOf is an attachment's address of the block; not valid: it has none.
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
