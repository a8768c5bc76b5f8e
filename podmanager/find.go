package podmanager

import (
	"context"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Find gives what Add replied for an attachment that is complete, and has its addresses. It refuses what an
// Add would refuse before it looks, so that nobody prepares one in vain.
func (m *Manager) Find(ctx context.Context, req *weftv1.FindRequest) (*weftv1.FindReply, error) {
	found, err := m.findReply(ctx, req)
	if err != nil {
		return &weftv1.FindReply{Error: replyError(err, nil)}, nil
	}
	return &weftv1.FindReply{Found: found}, nil
}

func (m *Manager) findReply(ctx context.Context, req *weftv1.FindRequest) (*weftv1.AddReply, error) {
	if err := m.admitNew(req.GetCaller()); err != nil {
		return nil, err
	}
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return nil, err
	}
	r := m.find(key)
	if r == nil || r.complete && r.attachment.AwaitsAddresses {
		return nil, nil
	}
	ev := &pod.AddPod{Key: key, ID: r.attachment.Pod}
	if ev.Netns, err = m.inspect(ctx, ev, req.GetNetns()); err != nil {
		return nil, err
	}
	if err := repeat(ev, r); err != nil {
		return nil, err
	}
	return replyOf(ev.Attachment), nil
}
