package podmanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/proto/deletequeue"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Add connects a sandbox, or returns the same reply again for a complete attachment. A request that is rejected before
// the queue becomes an event too and is in the event log.
func (m *Manager) Add(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	key, err := newKeyOf(req.GetAttachment())
	if err != nil {
		m.config.Log.Warn("pod refused", "container", req.GetAttachment().GetContainerId(), "err", err)
		m.outcomes.refused(req, err)
		return &weftv1.AddReply{Error: replyError(err, nil)}, nil
	}
	asked := &pod.AddPod{Request: pod.Request{Key: key, ID: idOf(req.GetPod()), Mode: req.GetMode()}}
	c := newCall(ctx, &asked.Request)
	defer c.cancel(nil)
	m.cancelOlder(&asked.Request, errReplaced)
	defer m.underWay(key, c)()
	c.prepare(ctx, func(ctx context.Context) error { return m.prepare(ctx, req, asked) })
	ev, rec, err := handle(ctx, m.attempts, c, func(a pod.Attempt) *pod.AddPod {
		ev := *asked
		ev.Attempt = a
		return &ev
	})
	if err == nil {
		err = withCode(m.assign(ctx, ev), pod.CodeTryAgain, "%s", ev)
	}
	if err != nil {
		m.config.Log.Warn("pod not connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID,
			"queued", rec != nil && !rec.Started.IsZero(), "err", err)
		m.outcomes.failed(ev, err, rec)
		m.config.Cluster.Forget(ev.ID)
		return &weftv1.AddReply{Error: replyError(err, rec)}, nil
	}
	m.announcements.announce(ctx, c, ev)
	m.config.Log.Info("pod connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID,
		"netns", ev.Netns.Path, "annotations", ev.AnnotationsFrom, "repeated", ev.Repeated, "took", rec.Took)
	return replyOf(ev.Attachment), nil
}

// assign writes the addresses of a connected pod to its claims. A new pod is deleted again if that fails. A repeated
// ADD never deletes the pod, which may run.
func (m *Manager) assign(ctx context.Context, ev *pod.AddPod) error {
	err := m.claims.assign(ctx, ev.Attachment, ev.Repeated)
	if err != nil && !ev.Repeated {
		gone := &pod.DeletePod{Key: ev.Key, ID: ev.ID, Reason: "IPAMClaim not written"}
		_, _ = m.delete(context.WithoutCancel(ctx), gone) // it logs
	}
	return err
}

// prepare collects and checks all inputs of the event before it is queued.
func (m *Manager) prepare(ctx context.Context, req *weftv1.AddRequest, ev *pod.AddPod) (err error) {
	if req.GetHasAnnotations() { // also for the record of a pod that is refused below
		ev.Annotations = req.GetAnnotations()
	}
	ev.Connected = m.isConnected(ev.Key)
	if err := m.gate.admitUnless(ev.Connected, req.GetCaller()); err != nil {
		return err
	}
	if err := modeIsServed(ev); err != nil {
		return err
	}
	if ev.Requested, err = requested(req); err != nil {
		return err
	}
	if ev.Netns, err = m.inputs.inspect(ctx, &ev.Request, req.GetNetns()); err != nil {
		return err
	}
	if ev.Connected {
		return m.void(ctx, ev.Key)
	}
	if ev.Annotations, ev.AnnotationsFrom, err = m.inputs.annotations(ctx, ev.ID, req); err != nil {
		return err
	}
	if err := m.inputs.complete(ctx, &ev.Request); err != nil {
		return err
	}
	ev.FixedInterfaces = m.inputs.areFixed(&ev.Request)
	if ev.Selected, err = m.inputs.selected(ctx, &ev.Request); err != nil {
		return err
	}
	if err := m.inputs.claimed(ctx, &ev.Request); err != nil {
		return err
	}
	extra, _ := ev.Extra() // the handlers that create interfaces report invalid annotations
	if err := m.claims.read(&ev.Request, extra, m.claims.reader(ctx, ev.ID)); err != nil {
		return err
	}
	if err := m.inputs.grants(ctx, &ev.Request); err != nil {
		return err
	}
	m.config.Cluster.Learn(ctx, ev.ID)
	if err := m.inputs.refuseForeignLinks(ctx, &ev.Request); err != nil {
		return err
	}
	if err := m.void(ctx, ev.Key); err != nil {
		return err
	}
	return m.dropOlder(ctx, &ev.Request)
}

// void removes a queued DEL, because the same attachment is added again.
func (m *Manager) void(ctx context.Context, key pod.Key) error {
	return m.config.Queue.Remove(ctx, deletequeue.Key(key))
}

// dropOlder deletes attachments of the pod's older sandboxes if their network namespaces are gone: a pod has one
// sandbox at a time, and the new one may get the devices of the old one.
func (m *Manager) dropOlder(ctx context.Context, newer *pod.Request) error {
	for _, older := range m.Attachments() {
		if newer.ID.IsZero() || older.Pod.Namespace != newer.ID.Namespace || older.Pod.Name != newer.ID.Name ||
			older.Key.ContainerID == newer.Key.ContainerID || !m.config.Node.IsGone(older.Netns) {
			continue
		}
		gone := &pod.DeletePod{
			Key:    older.Key,
			ID:     older.Pod,
			Reason: "the pod has a newer sandbox, and the network namespace is gone",
		}
		if _, err := m.config.Loop.Do(ctx, gone); err != nil {
			return fmt.Errorf("delete its older attachment: %w", err)
		}
	}
	return nil
}

// modes are the supported modes. A plugin of a later release may know more.
var modes = []string{pod.ModePrimary, pod.ModeChained, pod.ModeDelegate, pod.ModeIPAM}

func modeIsServed(ev *pod.AddPod) error {
	if ev.Mode == "" || slices.Contains(modes, ev.Mode) {
		return nil
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: unknown mode %q: use one of %s, or a newer agent",
		ev, ev.Mode, strings.Join(modes, ", "))
}

// Address adds the awaited addresses to an attachment. If it has them, Address returns the same reply again. A failure
// leaves the attachment unchanged.
func (m *Manager) Address(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return &weftv1.AddReply{Error: replyError(err, nil)}, nil
	}
	ev := &pod.AddressPod{Key: key, ID: m.idOf(key, req.GetPod())}
	ev.Began = time.Now()
	ev.Refused = m.prepareAddress(req, ev)
	failed := &pod.AddPod{Request: pod.Request{Key: ev.Key, ID: ev.ID}}
	c := newCall(ctx, &failed.Request)
	defer c.cancel(nil)
	defer m.underWay(ev.Key, c)()
	rec, err := m.config.Loop.Do(ctx, ev)
	if err != nil {
		m.config.Log.Warn("pod got no addresses", "pod", ev.ID.String(), "container", ev.Key.ContainerID, "err", err)
		m.outcomes.failed(failed, err, rec)
		return &weftv1.AddReply{Error: replyError(err, rec)}, nil
	}
	m.config.Log.Info("pod got its addresses", "pod", ev.ID.String(), "container", ev.Key.ContainerID, "took", rec.Took)
	return replyOf(ev.Attachment), nil
}

// prepareAddress completes the event. It works also while new pods are paused, because the ADD began before.
func (m *Manager) prepareAddress(req *weftv1.AddRequest, ev *pod.AddressPod) error {
	if err := m.gate.admit(req.GetCaller()); err != nil {
		return err
	}
	if err := delegate(&ev.Requested, req); err != nil {
		return err
	}
	if len(ev.Requested.Delegated) == 0 {
		return pod.Errorf(pod.CodeInvalidConfig, "%s: the IPAM plugin returned no address", ev)
	}
	return nil
}

// Find returns the reply of Add for a complete attachment that has its addresses. It rejects requests that Add would
// reject, so that the caller does not prepare an ADD in vain.
func (m *Manager) Find(ctx context.Context, req *weftv1.FindRequest) (*weftv1.FindReply, error) {
	found, err := m.findReply(ctx, req)
	if err != nil {
		return &weftv1.FindReply{Error: replyError(err, nil)}, nil
	}
	return &weftv1.FindReply{Found: found}, nil
}

func (m *Manager) findReply(ctx context.Context, req *weftv1.FindRequest) (*weftv1.AddReply, error) {
	key, err := keyOf(req.GetAttachment())
	if err != nil {
		return nil, err
	}
	if err := m.gate.admitUnless(m.isConnected(key), req.GetCaller()); err != nil {
		return nil, err
	}
	r := m.find(key)
	if r == nil || r.complete && r.attachment.AwaitsAddresses {
		return nil, nil
	}
	ev := &pod.AddPod{Request: pod.Request{Key: key, ID: r.attachment.Pod}}
	if ev.Netns, err = m.inputs.inspect(ctx, &ev.Request, req.GetNetns()); err != nil {
		return nil, err
	}
	if err := repeat(ev, r); err != nil {
		return nil, err
	}
	return replyOf(ev.Attachment), nil
}
