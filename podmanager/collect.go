package podmanager

import (
	"context"
	"errors"
	"fmt"

	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Collect removes all attachments of a network that the runtime does not list. It
// goes on past failures and reports them all.
func (m *Manager) Collect(ctx context.Context, req *weftv1.CollectRequest) (*weftv1.CollectReply, error) {
	if err := m.admit(req.GetCaller()); err != nil {
		return &weftv1.CollectReply{Error: replyError(err, nil)}, nil
	}
	if req.GetNetwork() == "" {
		err := pod.Errorf(pod.CodeInvalidConfig, "collect: the network's name is needed")
		return &weftv1.CollectReply{Error: replyError(err, nil)}, nil
	}
	reply := &weftv1.CollectReply{}
	var errs []error
	valid := validKeys(req)
	for _, a := range m.Attachments() {
		if a.Key.Network != req.GetNetwork() || valid[a.Key] || !m.collectable(a.Key) {
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

// collectable is asked right before each removal: the runtime's list may be older
// than the attachment, and an ADD of it may have begun meanwhile.
func (m *Manager) collectable(key pod.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.pods[key]
	return ok && r.complete && m.adds[key] == 0 && m.config.Now().Sub(r.attachment.Created) >= m.config.Grace
}
