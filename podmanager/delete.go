package podmanager

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Delete deletes an attachment by its key. It succeeds for an unknown or illegal key: a runtime repeats a failed DEL
// forever.
func (m *Manager) Delete(ctx context.Context, req *weftv1.DeleteRequest) (*weftv1.DeleteReply, error) {
	if err := m.gate.admit(req.GetCaller()); err != nil {
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

// delete runs a deletion. It succeeds while the scheduler retries removals, and if the state file was not written: the
// loop repeats that, and a restarted agent finds the sandbox gone. It fails if the scheduler gave up a removal.
func (m *Manager) delete(ctx context.Context, ev *pod.DeletePod) (*eventloop.Record, error) {
	m.CancelAdds(ev.Key)
	log := m.config.Log.With("pod", ev.ID.String(), "container", ev.Key.ContainerID, "reason", ev.Reason)
	rec, err := m.config.Loop.Do(ctx, ev)
	switch {
	case err == nil:
		log.Info("pod disconnected", "took", rec.Took)
		return rec, nil
	case rec != nil && !rec.Started.IsZero() && len(rec.Stuck) == 0:
		log.Warn("pod disconnected, retrying incomplete removals", "err", err)
		return rec, nil
	}
	log.Warn("pod not disconnected", "err", err)
	return rec, err
}

// idOf returns the pod of the attachment, or else the one that the caller names.
func (m *Manager) idOf(key pod.Key, caller *weftv1.Pod) pod.ID {
	if a, ok := m.Attachment(key); ok {
		return a.Pod
	}
	return idOf(caller)
}

// Collect deletes all attachments of a network that the runtime does not list. It continues after failures and reports
// all.
func (m *Manager) Collect(ctx context.Context, req *weftv1.CollectRequest) (*weftv1.CollectReply, error) {
	if err := m.gate.admit(req.GetCaller()); err != nil {
		return &weftv1.CollectReply{Error: replyError(err, nil)}, nil
	}
	if req.GetNetwork() == "" {
		err := pod.Errorf(pod.CodeInvalidConfig, "collect: the network's name is required")
		return &weftv1.CollectReply{Error: replyError(err, nil)}, nil
	}
	reply := &weftv1.CollectReply{}
	var errs []error
	valid := validKeys(req)
	for _, a := range m.Attachments() {
		// The check is right before each removal: the runtime's list may be older than the attachment, and an ADD may
		// have begun meanwhile.
		if a.Key.Network != req.GetNetwork() || valid[a.Key] ||
			!m.isCreatedBefore(a.Key, m.config.Now().Add(-m.config.Grace)) {
			continue
		}
		ev := &pod.DeletePod{Key: a.Key, ID: a.Pod, Reason: "GC"}
		if _, err := m.delete(ctx, ev); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ev, err))
			continue
		}
		reply.Removed = append(reply.Removed, &weftv1.Attachment{
			Network: a.Key.Network, ContainerId: a.Key.ContainerID, IfName: a.Key.IfName,
		})
	}
	if len(errs) > 0 {
		all := errors.Join(errs...)
		reply.Error = &weftv1.Error{Code: uint32(codeOf(all, nil)), Msg: line.Of(all.Error(), line.Error)}
	}
	return reply, nil
}

func validKeys(req *weftv1.CollectRequest) map[pod.Key]bool {
	valid := make(map[pod.Key]bool, len(req.GetValid()))
	for _, a := range req.GetValid() {
		valid[pod.Key{Network: req.GetNetwork(), ContainerID: a.GetContainerId(), IfName: a.GetIfName()}] = true
	}
	return valid
}
