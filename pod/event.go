package pod

import (
	"fmt"
	"time"
)

// Preparation is what the caller of an event did before it was queued. A refused event only makes a record.
type Preparation struct {
	Began   time.Time // when the caller began to complete the event; zero: it had nothing to do
	Refused error     // why the caller could not
}

// Prepared returns both.
func (p Preparation) Prepared() (began time.Time, refused error) { return p.Began, p.Refused }

// Attempt is the part of an event about its caller: the preparation, and the reaction to a failure.
type Attempt struct {
	// Preparation is how the fields of the request were completed.
	Preparation

	// Awaits reports whether the caller can get what the event lacks after this error, and repeats the event then; nil:
	// it cannot.
	Awaits func(err error) bool
	// Cancelled returns why the event must not be handled any more; nil, also as a function: it may.
	Cancelled func() error
}

// Refuse makes the event one that only makes a record, because its caller cannot complete it.
func (a *Attempt) Refuse(why error) { a.Preparation = Preparation{Refused: why} }

// Defers reports whether a failed attempt is no failure of the event yet.
func (a *Attempt) Defers(err error) bool { return a.Awaits != nil && a.Awaits(err) }

// AddPod connects a sandbox. The handlers set its results.
type AddPod struct {
	Request
	Attempt

	// Connected means that the attachment existed when the request came: the event only repeats the answer. What only a
	// new pod needs is not complete then: annotations, requests for interfaces, grants.
	Connected bool

	// FixedInterfaces means that later edits of the annotations do not change the interfaces, see Attachment.
	FixedInterfaces bool

	// Attachment is set by the first handler and completed by the others. Repeated means that it existed and is
	// complete.
	Attachment *Attachment
	Repeated   bool

	// HandedOver are the changed attachments of older sandboxes that lost addresses or devices to this one.
	HandedOver []*Attachment
}

// DeletePod deletes an attachment that is complete, incomplete or missing.
type DeletePod struct {
	Key    Key
	Reason string // DEL, queued DEL, GC, namespace gone, reboot

	ID ID // for people; zero if unknown
}

// String returns the name of the event in logs and records.
func (e *DeletePod) String() string { return "delete " + describe(e.ID, e.Key) }

// Subject returns the key of the attachment.
func (e *DeletePod) Subject() string { return e.Key.String() }

// Removal makes handlers run in reverse order and continue after errors.
func (e *DeletePod) Removal() {}

// Validate validates the key.
func (e *DeletePod) Validate() error { return e.Key.Validate() }

// Validate rejects a key with an empty part. The servers of requests validate the syntax of the parts.
func (k Key) Validate() error {
	if k.Network == "" || k.ContainerID == "" || k.IfName == "" {
		return Errorf(CodeInvalidEnvironment, "attachment %q: network, container id and interface name are required",
			k.String())
	}
	return nil
}

func describe(id ID, k Key) string {
	if id.IsZero() {
		return fmt.Sprintf("container %s %s (%s)", ShortID(k.ContainerID), k.IfName, k.Network)
	}
	return fmt.Sprintf("pod %s %s (%s, sandbox %s)", id, k.IfName, k.Network, ShortID(k.ContainerID))
}

// WithholdPods replaces the set of attachments whose dataplane objects are not desired. Their kernel objects, addresses
// and memif directories stay.
type WithholdPods struct {
	Partial
	Keys   []Key
	Reason string // one line for logs and records
}

// String returns the name of the event in logs and records.
func (e *WithholdPods) String() string { return e.Reason }
