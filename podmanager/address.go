package podmanager

import (
	"context"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Address gives an attachment the addresses that it awaits. It repeats the reply for one that has them. A failure leaves
// the attachment as it was, for a DEL.
func (m *Manager) Address(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return &weftv1.AddReply{Error: replyError(err, nil)}, nil
	}
	ev := &pod.AddressPod{Key: key, ID: m.idOf(key, req.GetPod()), Prepare: func(ev *pod.AddressPod) error { return m.prepareAddress(req, ev) }}
	defer m.underWay(ev.Key)()
	rec, err := m.config.Loop.Do(ctx, ev)
	if err != nil {
		m.config.Log.Warn("pod got no addresses", "pod", ev.ID.String(), "container", ev.Key.ContainerID, "err", err)
		m.failed(ev.Key, ev.ID, err, rec)
		return &weftv1.AddReply{Error: replyError(err, rec)}, nil
	}
	m.config.Log.Info("pod got its addresses", "pod", ev.ID.String(), "container", ev.Key.ContainerID, "took", rec.Took)
	return replyOf(ev.Attachment), nil
}

// prepareAddress completes the event. It is served also while new pods are held up: this one was begun before.
func (m *Manager) prepareAddress(req *weftv1.AddRequest, ev *pod.AddressPod) error {
	if err := m.admit(req.GetCaller()); err != nil {
		return err
	}
	if err := delegate(&ev.Requested, req); err != nil {
		return err
	}
	if len(ev.Requested.Delegated) == 0 {
		return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin gave no address", ev)
	}
	return nil
}
