package podmanager

import (
	"context"
	"slices"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// Change gives a connected pod the extra interfaces that its annotations request now, all or nothing, and returns the
// changes. A pod that has them, or that Weft did not connect, is left alone.
func (m *Manager) Change(ctx context.Context, id pod.ID, annotations map[string]string) (pod.Changes, error) {
	a := m.changeable(id)
	if a == nil {
		return pod.Changes{}, nil
	}
	asked := edited(a, annotations)
	if !a.IsEdited(annotations) {
		return pod.Changes{}, nil
	}
	c := newCall(ctx, &asked.AddPod)
	defer c.cancel(nil)
	defer m.underWay(a.Key, c)()
	asked.Cancelled = c.err
	asked.Began = time.Now()
	asked.Refused = m.prepareChange(ctx, asked, m.claimReader(ctx, asked.ID))
	ev, err := m.change(ctx, c, asked)
	if err != nil {
		m.config.Log.Warn("interfaces of the pod not changed", "pod", a.Pod.String(), "container", a.Key.ContainerID,
			"err", err)
		return pod.Changes{}, err
	}
	if ev.Changes.IsZero() {
		return pod.Changes{}, nil
	}
	m.config.Log.Info("interfaces of the pod changed", "pod", a.Pod.String(), "container", a.Key.ContainerID,
		"changes", ev.Changes.String())
	ev.Repeated = true // the pod runs, also if its claims cannot be written now
	if err := m.assign(ctx, &ev.AddPod); err != nil {
		m.config.Log.Warn("addresses not written to IPAMClaims yet", "pod", a.Pod.String(), "err", err)
	}
	return ev.Changes, nil
}

// edited returns the event of an edit.
func edited(a *pod.Attachment, annotations map[string]string) *pod.ChangePod {
	return &pod.ChangePod{AddPod: pod.AddPod{
		Key: a.Key, ID: a.Pod, Mode: a.Mode, Netns: a.Netns, IsEdit: true,
		Annotations: a.Edited(annotations), AnnotationsFrom: "cache", Attachment: a,
	}}
}

// changeable returns the attachment of a pod whose ADD handled its annotations, in its newest sandbox; nil if there is
// none.
func (m *Manager) changeable(id pod.ID) *pod.Attachment {
	var newest *pod.Attachment
	for _, a := range m.OfPod(id) {
		hasExtra := slices.Contains([]string{"", pod.ModePrimary, pod.ModeChained}, a.Mode)
		if hasExtra && !a.AwaitsAddresses && !a.FixedInterfaces && (newest == nil || newest.Created.Before(a.Created)) {
			newest = &a
		}
	}
	if newest == nil || m.config.Node.IsGone(newest.Netns) {
		return nil
	}
	return newest
}

// prepareChange collects the inputs of the event before it is queued. Devices are granted as at ADD, except that those
// of the interfaces that stay are in use.
func (m *Manager) prepareChange(ctx context.Context, ev *pod.ChangePod, claims claimReader) error {
	if err := m.admitChange(); err != nil {
		return err
	}
	was := ev.Attachment.Annotations[pod.AnnotationNetworks]
	if was != ev.Annotations[pod.AnnotationNetworks] {
		var err error
		if ev.Selected, err = m.selected(ctx, &ev.AddPod); err != nil {
			return err
		}
	}
	if err := m.claimed(ctx, &ev.AddPod); err != nil {
		return err
	}
	changes, err := pod.ChangesOf(ev.Attachment, &ev.AddPod)
	if err != nil {
		return ev.Failed(err)
	}
	if err := m.readClaims(&ev.AddPod, changes.Made, claims); err != nil {
		return err
	}
	if err := m.grants(ctx, &ev.AddPod); err != nil {
		return err
	}
	return m.refuseLinksInTheWay(ctx, ev, changes)
}

// admitChange rejects changes while no pods are connected.
func (m *Manager) admitChange() error {
	if err := m.config.Admission.Ready(); err != nil {
		return &notReadyError{err}
	}
	if reason, paused := m.config.Admission.Paused(); paused {
		return pod.Errorf(pod.CodeTryAgain, "new interfaces are paused: %s", reason)
	}
	return nil
}

// refuseLinksInTheWay rejects the name of a new interface that a foreign link of the pod has.
func (m *Manager) refuseLinksInTheWay(ctx context.Context, ev *pod.ChangePod, changes pod.Changes) error {
	for _, r := range changes.Made {
		if r.Type == pod.TypeMemif {
			continue
		}
		if err := m.refuseForeignLink(ctx, &ev.AddPod, r.Name); err != nil {
			return err
		}
	}
	return nil
}

// change handles the event, and repeats it after a successful Refill, as connect does for an ADD.
func (m *Manager) change(ctx context.Context, c *call, asked *pod.ChangePod) (*pod.ChangePod, error) {
	for n := 0; ; n++ {
		attempt := *asked
		if n < refills {
			attempt.Awaits = m.config.Refiller.Refillable
		}
		if cause := c.err(); cause != nil {
			return &attempt, pod.Errorf(pod.CodeTryAgain, "%s: cancelled: %w", asked, cause)
		}
		rec, err := m.config.Loop.Do(ctx, &attempt)
		if err == nil || rec != nil || !attempt.Defers(err) {
			return &attempt, err
		}
		asked.Began = time.Time{}
		if refused := m.await(ctx, c, &asked.AddPod, err); refused != nil {
			attempt.Preparation = pod.Preparation{Refused: refused}
			_, err := m.config.Loop.Do(ctx, &attempt)
			return &attempt, err
		}
	}
}

// TrackChange is the first handler of a change.
func (m *Manager) TrackChange(_ context.Context, ev *pod.ChangePod, txn *eventloop.Txn) error {
	r := m.find(ev.Key)
	if r == nil || !r.complete || ev.Cancelled != nil && ev.Cancelled() != nil {
		return pod.Errorf(pod.CodeTryAgain, "%s: it is not connected, a concurrent DEL removed it", ev)
	}
	before := r.attachment
	changes, err := pod.ChangesOf(before, &ev.AddPod)
	if err != nil {
		return ev.Failed(err)
	}
	ev.Changes = changes
	ev.Attachment = clone(before)
	ev.Attachment.Annotations = kept(ev.Annotations)
	txn.OnCommit(func() {
		m.swap(ev.Key, &record{attachment: clone(ev.Attachment), complete: true})
		m.config.Observe(Outcome{
			Happening: Changed, Key: ev.Key, Pod: ev.ID, Attachment: clone(ev.Attachment), Before: clone(before),
		})
	})
	txn.Save(bucket, ev.Key.String(), ev.Attachment)
	return nil
}
