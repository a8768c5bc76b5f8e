package podmanager

import (
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Happening is the kind of an Outcome.
type Happening string

// Kinds of outcomes.
const (
	Added   Happening = "added"   // the attachment is complete and durable
	Changed Happening = "changed" // the interfaces of the attachment were changed
	Removed Happening = "removed" // the attachment was deleted, for any reason
	Failed  Happening = "failed"  // an ADD failed; an older attachment of the key may exist
)

// Outcome is a change of an attachment, or a failed ADD.
type Outcome struct {
	Happening Happening
	Key       pod.Key
	Pod       pod.ID

	Attachment *pod.Attachment // a copy; of Failed as decided before the error, nil if the error came first
	Before     *pod.Attachment // of Changed

	// Of Failed: code and text of the reply, and the event's record, nil if the ADD was rejected before the loop.
	Code   uint
	Text   string
	Record *eventloop.Record
}

// outcomes report what became of attachments.
type outcomes struct{ observe func(Outcome) }

// added reports a newly complete attachment.
func (o outcomes) added(a *pod.Attachment) {
	o.observe(Outcome{Happening: Added, Key: a.Key, Pod: a.Pod, Attachment: clone(a)})
}

// failed reports a failed ADD with the reply of the runtime. The event has ended if it has a record.
func (o outcomes) failed(ev *pod.AddPod, err error, rec *eventloop.Record) {
	reply := replyError(err, rec)
	failure := Outcome{
		Happening: Failed,
		Key:       ev.Key,
		Pod:       ev.ID,
		Code:      uint(reply.GetCode()),
		Text:      reply.GetMsg(),
		Record:    rec,
	}
	if rec != nil && ev.Attachment != nil {
		failure.Attachment = clone(ev.Attachment)
	}
	o.observe(failure)
}

// refused reports an ADD that did not become an event.
func (o outcomes) refused(req *weftv1.AddRequest, err error) {
	if key, wrong := keyOf(req.GetAttachment()); wrong == nil {
		o.failed(&pod.AddPod{Request: pod.Request{Key: key, ID: idOf(req.GetPod())}}, err, nil)
	}
}
