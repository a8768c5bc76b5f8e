package podmanager

import (
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// Happening is what happened to an attachment.
type Happening string

// What happens to attachments.
const (
	Added   Happening = "added"   // it is complete and durable
	Removed Happening = "removed" // it was deleted, for any reason
	Failed  Happening = "failed"  // an ADD of it failed; an attachment of the key may exist all the same
)

// Outcome is something that happened to an attachment.
type Outcome struct {
	Happening Happening
	Key       pod.Key
	Pod       pod.ID

	Attachment *pod.Attachment // of Added and Removed: a copy

	// Of Failed: the code and the line that the runtime gets, and the event's record; nil: it never was one.
	Code   uint
	Text   string
	Record *eventloop.Record
}

// added tells of an attachment that has just become complete.
func (m *Manager) added(a *pod.Attachment) {
	m.config.Observe(Outcome{Happening: Added, Key: a.Key, Pod: a.Pod, Attachment: clone(a)})
}

// failed tells of an ADD with what the runtime is told of it.
func (m *Manager) failed(key pod.Key, id pod.ID, err error, rec *eventloop.Record) {
	reply := replyError(err, rec)
	m.config.Observe(Outcome{Happening: Failed, Key: key, Pod: id, Code: uint(reply.GetCode()), Text: reply.GetMsg(), Record: rec})
}

// refused tells of an ADD that never became an event.
func (m *Manager) refused(req *weftv1.AddRequest, err error) {
	if key, wrong := keyOf(req.GetAttachment()); wrong == nil {
		m.failed(key, idOf(req.GetPod()), err, nil)
	}
}
