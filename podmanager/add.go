package podmanager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Add connects a sandbox, or repeats the reply that a complete attachment had. A request that is refused before it is queued is an
// event too, so that the log tells of it.
func (m *Manager) Add(ctx context.Context, req *weftv1.AddRequest) (*weftv1.AddReply, error) {
	key, err := newKeyOf(req.GetAttachment())
	if err != nil {
		m.config.Log.Warn("pod refused", "container", req.GetAttachment().GetContainerId(), "err", err)
		m.refused(req, err)
		return &weftv1.AddReply{Error: replyError(err, nil)}, nil
	}
	defer m.underWay(key)()
	ev, rec, err := m.connect(ctx, req, &pod.AddPod{Key: key, ID: idOf(req.GetPod()), Mode: req.GetMode()})
	if err != nil {
		m.config.Log.Warn("pod not connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID,
			"queued", rec != nil && !rec.Started.IsZero(), "err", err)
		m.failed(ev.Key, ev.ID, err, rec)
		return &weftv1.AddReply{Error: replyError(err, rec)}, nil
	}
	m.config.Log.Info("pod connected", "pod", ev.ID.String(), "container", ev.Key.ContainerID,
		"netns", ev.Netns.Path, "annotations", ev.AnnotationsFrom, "repeated", ev.Repeated, "took", rec.Took)
	return replyOf(ev.Attachment), nil
}

// refills is how often more addresses are asked for in one ADD, which may want some of several networks.
const refills = 20

// connect has the event handled, and again if the node got addresses that it had been without.
func (m *Manager) connect(ctx context.Context, req *weftv1.AddRequest, ev *pod.AddPod) (*pod.AddPod, *eventloop.Record, error) {
	ev.Prepare = func(ctx context.Context, attempt *pod.AddPod) error {
		err := m.prepare(ctx, req, attempt)
		*ev = *attempt
		ev.Prepare = nil
		return err
	}
	for n := 0; ; n++ {
		attempt := *ev
		rec, err := m.config.Loop.Do(ctx, &attempt)
		if err == nil || n == refills {
			return &attempt, rec, err
		}
		if err := m.config.Refill(ctx, ev, err); err != nil {
			return &attempt, rec, err
		}
	}
}

// prepare asks everything that is to be known before the event is queued.
func (m *Manager) prepare(ctx context.Context, req *weftv1.AddRequest, ev *pod.AddPod) (err error) {
	if err := m.admitNew(req.GetCaller()); err != nil {
		return err
	}
	if err := modeIsServed(ev); err != nil {
		return err
	}
	if ev.Requested, err = requested(req); err != nil {
		return err
	}
	if ev.Netns, err = m.inspect(ctx, ev, req.GetNetns()); err != nil {
		return err
	}
	if ev.Annotations, ev.AnnotationsFrom, err = m.annotations(ctx, ev.ID, req); err != nil {
		return err
	}
	if ev.Selected, err = m.selected(ctx, ev); err != nil {
		return err
	}
	if ev.Grants, err = m.grants(ctx, ev); err != nil {
		return err
	}
	if err := m.refuseForeignLinks(ctx, ev); err != nil {
		return err
	}
	if err := m.config.Void(ctx, ev.Key); err != nil {
		return err
	}
	return m.dropOlder(ctx, ev)
}

// dropOlder deletes attachments of the pod's older sandboxes whose network namespaces are gone: a pod has one sandbox at a time, and
// the new one may get the devices of the old one.
func (m *Manager) dropOlder(ctx context.Context, ev *pod.AddPod) error {
	for _, older := range m.Attachments() {
		if ev.ID.IsZero() || older.Pod.Namespace != ev.ID.Namespace || older.Pod.Name != ev.ID.Name ||
			older.Key.ContainerID == ev.Key.ContainerID || !m.config.IsGone(older.Netns) {
			continue
		}
		gone := &pod.DeletePod{Key: older.Key, ID: older.Pod, Reason: "the pod has a newer sandbox, and the network namespace is gone"}
		if _, err := m.config.Loop.Do(ctx, gone); err != nil {
			return fmt.Errorf("delete its older attachment: %w", err)
		}
	}
	return nil
}

// modes are what Weft can be to a sandbox; a plugin of a later release may know more.
var modes = []string{pod.ModePrimary, pod.ModeChained, pod.ModeDelegate, pod.ModeIPAM}

func modeIsServed(ev *pod.AddPod) error {
	if ev.Mode == "" || slices.Contains(modes, ev.Mode) {
		return nil
	}
	return pod.Errorf(pod.CodeInvalidConfig, "%s: mode %q is none that this agent knows: use one of %s, or a newer agent",
		ev, ev.Mode, strings.Join(modes, ", "))
}

func (m *Manager) inspect(ctx context.Context, ev *pod.AddPod, path string) (pod.Netns, error) {
	if !filepath.IsAbs(path) {
		return pod.Netns{}, pod.Errorf(pod.CodeInvalidEnvironment, "%s: CNI_NETNS %q is not an absolute path", ev, path)
	}
	netns, err := m.config.Inspect(ctx, path)
	if err == nil {
		return netns, nil
	}
	if _, ok := errors.AsType[*pod.Error](err); ok {
		return netns, err
	}
	return netns, pod.Errorf(pod.CodeInvalidNetns, "%s: network namespace: %w", ev, err)
}

// annotations takes those of the runtime if it gave any, else asks.
func (m *Manager) annotations(ctx context.Context, id pod.ID, req *weftv1.AddRequest) (map[string]string, string, error) {
	switch {
	case req.GetHasAnnotations():
		return req.GetAnnotations(), "runtime", nil
	case id.IsZero() || m.config.Annotations == nil:
		return nil, "none", nil
	}
	annotations, from, err := m.config.Annotations(ctx, id)
	if err == nil {
		return annotations, from, nil
	}
	if _, ok := errors.AsType[*pod.Error](err); ok {
		return nil, "", err
	}
	return nil, "", pod.Errorf(pod.CodeTryAgain, "pod %s: ask for its annotations: %w", id, err)
}

// selected looks up the networks that a pod selects. Where another plugin calls Weft, or Weft stands behind one, that is
// theirs to do.
func (m *Manager) selected(ctx context.Context, ev *pod.AddPod) ([]pod.InterfaceRequest, error) {
	if m.config.Selected == nil || ev.ID.IsZero() || ev.Mode != "" && ev.Mode != pod.ModePrimary {
		return nil, nil
	}
	return m.config.Selected(ctx, ev)
}

// underWay marks an ADD of key until the returned function is called.
func (m *Manager) underWay(key pod.Key) (ended func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adds[key]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.adds[key]--; m.adds[key] == 0 {
			delete(m.adds, key)
		}
	}
}
