package podmanager

import (
	"context"
	"errors"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Delete takes an attachment away. It needs nothing but the key, and succeeds if there is none, also where there cannot be one:
// a runtime repeats a DEL that fails until the node is repaired.
func (m *Manager) Delete(ctx context.Context, req *weftv1.DeleteRequest) (*weftv1.DeleteReply, error) {
	if err := m.admit(req.GetCaller()); err != nil {
		return &weftv1.DeleteReply{Error: replyError(err, nil)}, nil
	}
	key, err := keyOf(req.GetAttachment())
	if errors.Is(err, errIllegalName) {
		m.config.Log.Info("nothing to disconnect", "err", err)
		return &weftv1.DeleteReply{}, nil
	}
	if err != nil {
		return &weftv1.DeleteReply{Error: replyError(err, nil)}, nil
	}
	rec, err := m.delete(ctx, &pod.DeletePod{Key: key, ID: m.idOf(key, req.GetPod()), Reason: "DEL"})
	if err != nil {
		return &weftv1.DeleteReply{Error: replyError(err, rec)}, nil
	}
	return &weftv1.DeleteReply{}, nil
}

// delete does a deletion. What the scheduler still tries to remove is no failure of
// it, nor what the state file did not take: the loop owes it that, and an agent that
// ends before finds the sandbox gone. What the scheduler gave up is.
func (m *Manager) delete(ctx context.Context, ev *pod.DeletePod) (*eventloop.Record, error) {
	log := m.config.Log.With("pod", ev.ID.String(), "container", ev.Key.ContainerID, "reason", ev.Reason)
	rec, err := m.config.Loop.Do(ctx, ev)
	switch {
	case err == nil:
		log.Info("pod disconnected", "took", rec.Took)
		return rec, nil
	case rec != nil && !rec.Started.IsZero() && len(rec.Stuck) == 0:
		log.Warn("pod disconnected, the rest is tried again", "err", err)
		return rec, nil
	}
	log.Warn("pod not disconnected", "err", err)
	return rec, err
}

// idOf names the pod for people: as it was added, else as the caller says.
func (m *Manager) idOf(key pod.Key, caller *weftv1.Pod) pod.ID {
	if a, ok := m.Attachment(key); ok {
		return a.Pod
	}
	return idOf(caller)
}
