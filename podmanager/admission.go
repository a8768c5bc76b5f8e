package podmanager

import (
	"cmp"
	"context"
	"errors"

	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Supported protocols: this one, the previous one and the next one.
const (
	oldestProtocol = max(weftv1.Protocol-1, 1)
	newestProtocol = weftv1.Protocol + 1
)

// gate decides which calls are served now.
type gate struct{ admission Admission }

// admit rejects a caller with an unsupported protocol, and all callers while the agent is not ready.
func (g gate) admit(caller *weftv1.Caller) error {
	if p := caller.GetProtocol(); p < oldestProtocol || p > newestProtocol {
		return pod.Errorf(pod.CodeVersionMismatch,
			"plugin %s speaks protocol %d, this agent speaks %d: install the plugin of the agent's release",
			cmp.Or(caller.GetVersion(), "of unknown version"), p, weftv1.Protocol)
	}
	if err := g.admission.Ready(); err != nil {
		return &notReadyError{err}
	}
	return nil
}

// admitNew also rejects new pods while they are paused.
func (g gate) admitNew(caller *weftv1.Caller) error {
	if err := g.admit(caller); err != nil {
		return err
	}
	if reason, paused := g.admission.Paused(); paused {
		return pod.Errorf(pod.CodeTryAgain, "new pods are paused: %s", reason)
	}
	return nil
}

// admitUnless is admitNew for a pod that is new, and admit for one that is connected: its ADD has its answer already.
func (g gate) admitUnless(connected bool, caller *weftv1.Caller) error {
	if connected {
		return g.admit(caller)
	}
	return g.admitNew(caller)
}

// admitEdit rejects edits while no pods are connected.
func (g gate) admitEdit() error {
	if err := g.admission.Ready(); err != nil {
		return &notReadyError{err}
	}
	if reason, paused := g.admission.Paused(); paused {
		return pod.Errorf(pod.CodeTryAgain, "new interfaces are paused: %s", reason)
	}
	return nil
}

// Status reports whether an ADD would be served. It never waits.
func (m *Manager) Status(_ context.Context, req *weftv1.StatusRequest) (*weftv1.StatusReply, error) {
	err := m.gate.admitNew(req.GetCaller())
	if err == nil {
		why := m.config.Admission.Exhausted()
		if why == "" {
			return &weftv1.StatusReply{}, nil
		}
		err = pod.Errorf(pod.CodeUnavailable, "%s", why)
	}
	reply := replyError(err, nil)
	reply.Code = uint32(pod.CodeUnavailable)
	if own, ok := errors.AsType[*pod.Error](err); ok && own.Code == pod.CodeLimited {
		reply.Code = uint32(pod.CodeLimited)
	}
	if reply.Details == starting && !m.config.Admission.Started() {
		reply.Details = restoring
	}
	return &weftv1.StatusReply{Error: reply}, nil
}

// WouldServe returns the error with which every ADD is refused now; nil if ADDs are served. If isStarting is set, the
// agent has not started, and cannot plan yet.
func (m *Manager) WouldServe() (isStarting bool, refusal error) {
	return !m.config.Admission.Started(), m.gate.admitNew(&weftv1.Caller{Protocol: weftv1.Protocol})
}
