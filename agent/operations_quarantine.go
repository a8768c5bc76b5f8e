package agent

import (
	"context"

	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Quarantine lists the attachments under suspicion.
func (o *operations) Quarantine(context.Context, *weftv1.QuarantineRequest) (*weftv1.QuarantineReply, error) {
	reply := &weftv1.QuarantineReply{}
	for _, s := range o.replayer.agent.quarantine.all() {
		reply.Entries = append(reply.Entries, &weftv1.QuarantineEntry{
			Attachment: &weftv1.Attachment{Network: s.Key.Network, ContainerId: s.Key.ContainerID, IfName: s.Key.IfName},
			Pod:        &weftv1.Pod{Namespace: s.Pod.Namespace, Name: s.Pod.Name, Uid: s.Pod.UID},
			State:      s.State, Crashes: uint32(s.Crashes), Since: stamp(s.Since), Reason: s.Reason,
		})
	}
	return reply, nil
}

// Release gives quarantined attachments back to the dataplane.
func (o *operations) Release(ctx context.Context, req *weftv1.ReleaseRequest) (*weftv1.ReleaseReply, error) {
	n, err := o.replayer.release(ctx, req.Name)
	reply := &weftv1.ReleaseReply{Released: uint32(n)}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply, nil
}
