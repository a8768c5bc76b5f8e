package operations

import (
	"context"

	"github.com/weftnet/weft/agent/recovery"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// quarantine lists and releases quarantined attachments.
type quarantine struct {
	quarantined *recovery.Quarantine
	replayer    *recovery.Replayer
}

// Quarantine lists refused pods, and suspected and quarantined attachments.
func (q *quarantine) Quarantine(context.Context, *operatorv1.QuarantineRequest) (*operatorv1.QuarantineReply, error) {
	reply := &operatorv1.QuarantineReply{}
	for _, s := range q.quarantined.Listed() {
		reply.Entries = append(reply.Entries, &operatorv1.QuarantineEntry{
			Attachment: attachmentOf(s.Key),
			Pod:        podOf(s.Pod),
			State:      s.State,
			Crashes:    uint32(s.Crashes),
			Since:      stamp(s.Since),
			Reason:     s.Reason,
		})
	}
	return reply, nil
}

// Release ends the quarantine of attachments.
func (q *quarantine) Release(ctx context.Context, req *operatorv1.ReleaseRequest) (*operatorv1.ReleaseReply, error) {
	n, err := q.replayer.Release(ctx, req.Name)
	return &operatorv1.ReleaseReply{Released: uint32(n), Error: textOf(err)}, nil
}
