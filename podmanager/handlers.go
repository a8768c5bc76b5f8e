package podmanager

import (
	"context"
	"maps"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// bucket is the state file's bucket of attachments, by key.
const bucket = "attachments"

// handlers change the attachments in the transactions of the event loop.
type handlers struct {
	attachments *attachments
	outcomes    outcomes
	now         func() time.Time
}

// TrackPod is the first handler of an ADD. It creates the attachment, which later handlers complete, or finds a
// complete one.
func (h *handlers) TrackPod(_ context.Context, ev *pod.AddPod, txn *eventloop.Txn) error {
	if r := h.attachments.find(ev.Key); r != nil {
		return repeat(ev, r)
	}
	if ev.Connected {
		return pod.Errorf(pod.CodeTryAgain, "%s: it was connected, and a concurrent DEL removed it: try again", ev)
	}
	if ev.Cancelled != nil && ev.Cancelled() != nil { // its DEL may have been handled before this event was queued
		return pod.Errorf(pod.CodeTryAgain, "%s: cancelled: %w", ev, ev.Cancelled())
	}
	ev.Attachment = &pod.Attachment{
		Key: ev.Key, Pod: ev.ID, Netns: ev.Netns, Mode: ev.Mode,
		Created: h.now().UTC(), Annotations: kept(ev.Annotations), AnnotationsFrom: ev.AnnotationsFrom,
		Delegation: ev.Requested.Delegation, AwaitsAddresses: ev.Requested.AwaitsAddresses,
		FixedInterfaces: ev.FixedInterfaces,
	}
	h.attachments.swap(ev.Key, &record{attachment: ev.Attachment})
	txn.OnRollback(func() error { h.attachments.swap(ev.Key, nil); return nil })
	txn.OnCommit(func() {
		h.attachments.swap(ev.Key, &record{attachment: clone(ev.Attachment), complete: true})
		for _, older := range ev.HandedOver {
			h.attachments.swap(older.Key, &record{attachment: clone(older), complete: true})
			h.outcomes.added(older)
		}
		if !ev.Attachment.AwaitsAddresses {
			h.outcomes.added(ev.Attachment)
		}
	})
	txn.Save(bucket, ev.Key.String(), ev.Attachment)
	return nil
}

// repeat answers an ADD of an attachment that exists.
func repeat(ev *pod.AddPod, r *record) error {
	switch had := r.attachment.Netns; {
	case !r.complete:
		return pod.Errorf(pod.CodeTryAgain, "%s: another ADD for it is in progress: try again", ev)
	case had.Inode != ev.Netns.Inode || had.Device != ev.Netns.Device:
		return pod.Errorf(pod.CodeInvalidEnvironment,
			"%s: it is connected already, in the network namespace %s, and CNI_NETNS names another one: delete it first",
			ev, had.Path)
	case r.attachment.AwaitsAddresses && !ev.Requested.AwaitsAddresses:
		return pod.Errorf(pod.CodeInvalidEnvironment,
			"%s: it is connected already and awaits addresses of another IPAM plugin than the configured one: delete it first",
			ev)
	}
	ev.Attachment = clone(r.attachment)
	ev.Repeated = true
	return nil
}

// TrackAddresses is the first handler of an AddressPod. The later handlers add the addresses.
func (h *handlers) TrackAddresses(_ context.Context, ev *pod.AddressPod, txn *eventloop.Txn) error {
	r := h.attachments.find(ev.Key)
	if r == nil || !r.complete {
		return pod.Errorf(pod.CodeTryAgain, "%s: it is not connected, a concurrent DEL removed it: try again", ev)
	}
	ev.Attachment = clone(r.attachment)
	if !ev.Attachment.AwaitsAddresses {
		ev.Repeated = true
		return nil
	}
	ev.Attachment.AwaitsAddresses = false
	ev.Attachment.Delegation = ev.Requested.Delegation
	txn.OnCommit(func() {
		h.attachments.swap(ev.Key, &record{attachment: clone(ev.Attachment), complete: true})
		h.outcomes.added(ev.Attachment)
	})
	txn.Save(bucket, ev.Key.String(), ev.Attachment)
	return nil
}

// TrackChange is the first handler of a change.
func (h *handlers) TrackChange(_ context.Context, ev *pod.ChangePod, txn *eventloop.Txn) error {
	r := h.attachments.find(ev.Key)
	if r == nil || !r.complete || ev.Cancelled != nil && ev.Cancelled() != nil {
		return pod.Errorf(pod.CodeTryAgain, "%s: it is not connected, a concurrent DEL removed it", ev)
	}
	before := r.attachment
	changes, err := pod.ChangesOf(before, &ev.Request)
	if err != nil {
		return ev.Failed(err)
	}
	ev.Changes = changes
	ev.Attachment = clone(before)
	ev.Attachment.Annotations = kept(ev.Annotations)
	txn.OnCommit(func() {
		h.attachments.swap(ev.Key, &record{attachment: clone(ev.Attachment), complete: true})
		h.outcomes.observe(Outcome{
			Happening: Changed, Key: ev.Key, Pod: ev.ID, Attachment: clone(ev.Attachment), Before: clone(before),
		})
	})
	txn.Save(bucket, ev.Key.String(), ev.Attachment)
	return nil
}

// UntrackPod is the last handler of a DEL.
func (h *handlers) UntrackPod(_ context.Context, ev *pod.DeletePod, txn *eventloop.Txn) error {
	had := h.attachments.swap(ev.Key, nil)
	if had == nil {
		return nil
	}
	txn.OnRollback(func() error { h.attachments.swap(ev.Key, had); return nil })
	txn.OnCommit(func() {
		h.outcomes.observe(Outcome{
			Happening:  Removed,
			Key:        ev.Key,
			Pod:        had.attachment.Pod,
			Attachment: clone(had.attachment),
		})
	})
	txn.Save(bucket, ev.Key.String(), nil)
	return nil
}

func kept(annotations map[string]string) map[string]string {
	ours := maps.Clone(annotations)
	maps.DeleteFunc(ours, func(key, _ string) bool { return !pod.KeepsAnnotation(key) })
	return ours
}
