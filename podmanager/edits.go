package podmanager

import (
	"context"
	"log/slog"
	"slices"

	"github.com/weftnet/weft/pod"
)

// Edits give connected pods the extra interfaces that their annotations request after an edit.
type Edits struct {
	attachments *attachments
	gate        gate
	inputs      *inputs
	attempts    attempts
	claims      claims
	log         *slog.Logger
}

// Apply gives a connected pod the extra interfaces that its annotations request now, all or nothing, and returns the
// changes. A pod that has them, or that Weft did not connect, is left alone.
func (e *Edits) Apply(ctx context.Context, id pod.ID, annotations map[string]string) (pod.Changes, error) {
	a := e.editable(id)
	if a == nil || !a.IsEdited(annotations) {
		return pod.Changes{}, nil
	}
	request := requestOf(a, annotations)
	c := newCall(ctx, request)
	defer c.cancel(nil)
	defer e.attachments.underWay(a.Key, c)()
	c.prepare(ctx, func(ctx context.Context) error {
		return e.prepare(ctx, a, request, e.claims.reader(ctx, a.Pod))
	})
	ev, err := e.change(ctx, c)
	if err != nil {
		e.log.Warn("interfaces of the pod not changed", "pod", a.Pod.String(), "container", a.Key.ContainerID,
			"err", err)
		return pod.Changes{}, err
	}
	if ev.Changes.IsZero() {
		return pod.Changes{}, nil
	}
	e.log.Info("interfaces of the pod changed", "pod", a.Pod.String(), "container", a.Key.ContainerID,
		"changes", ev.Changes.String())
	if err := e.claims.assign(ctx, ev.Attachment, true); err != nil {
		e.log.Warn("addresses not written to IPAMClaims yet", "pod", a.Pod.String(), "err", err)
	}
	return ev.Changes, nil
}

// change handles the event of a call.
func (e *Edits) change(ctx context.Context, c *call) (*pod.ChangePod, error) {
	if cause := c.err(); cause != nil {
		return nil, pod.Errorf(pod.CodeTryAgain, "%s: cancelled: %w", c.request, cause)
	}
	ev, _, err := handle(ctx, e.attempts, c, func(a pod.Attempt) *pod.ChangePod {
		return &pod.ChangePod{Request: *c.request, Attempt: a}
	})
	return ev, err
}

// Plan makes the decisions of Apply, without side effects.
func (e *Edits) Plan(ctx context.Context, id pod.ID, annotations map[string]string) (*Planned, error) {
	a := e.editable(id)
	if a == nil {
		return nil, pod.Errorf(pod.CodeRefused,
			"pod %s: Weft has not connected it on this node, so an edit changes nothing; plan its ADD", id)
	}
	request := requestOf(a, annotations)
	var notes []string
	if err := e.prepare(ctx, a, request, e.claims.planned(ctx, id, &notes)); err != nil {
		return nil, err
	}
	ev := &pod.ChangePod{Request: *request}
	planned, err := e.attempts.loop.Plan(ctx, ev)
	if err != nil {
		return nil, err
	}
	changes := ev.Changes.String()
	if changes == "" {
		changes = "the pod has these interfaces already"
	}
	return &Planned{Attachment: ev.Attachment, Change: planned.Change, Notes: append(notes, changes)}, nil
}

// requestOf returns the request of a connected pod after an edit of its annotations.
func requestOf(a *pod.Attachment, annotations map[string]string) *pod.Request {
	return &pod.Request{
		Key: a.Key, ID: a.Pod, Mode: a.Mode, Netns: a.Netns, IsEdit: true,
		Annotations: a.Edited(annotations), AnnotationsFrom: "cache",
	}
}

// editable returns the attachment of a pod whose ADD handled its annotations, in its newest sandbox; nil: no such
// attachment exists.
func (e *Edits) editable(id pod.ID) *pod.Attachment {
	var newest *pod.Attachment
	for _, a := range e.attachments.OfPod(id) {
		hasExtra := slices.Contains([]string{"", pod.ModePrimary, pod.ModeChained}, a.Mode)
		if hasExtra && !a.AwaitsAddresses && !a.FixedInterfaces && (newest == nil || newest.Created.Before(a.Created)) {
			newest = &a
		}
	}
	if newest == nil || e.inputs.node.IsGone(newest.Netns) {
		return nil
	}
	return newest
}

// prepare collects the inputs of the event before it is queued. Devices are granted as at ADD, except that those of the
// interfaces that stay are in use.
func (e *Edits) prepare(ctx context.Context, a *pod.Attachment, request *pod.Request, claim claimReader) error {
	if err := e.gate.admitEdit(); err != nil {
		return err
	}
	if a.Annotations[pod.AnnotationNetworks] != request.Annotations[pod.AnnotationNetworks] {
		var err error
		if request.Selected, err = e.inputs.selected(ctx, request); err != nil {
			return err
		}
	}
	if err := e.inputs.claimed(ctx, request); err != nil {
		return err
	}
	changes, err := pod.ChangesOf(a, request)
	if err != nil {
		return request.Failed(err)
	}
	if err := e.claims.read(request, changes.Made, claim); err != nil {
		return err
	}
	if err := e.inputs.grants(ctx, request); err != nil {
		return err
	}
	return e.inputs.refuseLinksInTheWay(ctx, request, changes)
}
