package podmanager

import (
	"context"
	"errors"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Status says whether an ADD would be served. It never waits.
func (m *Manager) Status(_ context.Context, req *weftv1.StatusRequest) (*weftv1.StatusReply, error) {
	err := m.admitNew(req.GetCaller())
	if why := m.config.Exhausted(); err == nil && why != "" {
		err = pod.Errorf(pod.CodeUnavailable, "%s", why)
	}
	if err == nil {
		return &weftv1.StatusReply{}, nil
	}
	reply := replyError(err, nil)
	reply.Code = uint32(pod.CodeUnavailable)
	if own, ok := errors.AsType[*pod.Error](err); ok && own.Code == pod.CodeLimited {
		reply.Code = uint32(pod.CodeLimited)
	}
	if reply.Details == starting && !m.config.Started() {
		reply.Details = restoring
	}
	return &weftv1.StatusReply{Error: reply}, nil
}
