package podmanager

import (
	"context"
	"log/slog"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// defaultGrace is the minimum age of an attachment that a GC deletes: the runtime's list may be older than the attachment.
const defaultGrace = 30 * time.Second

// doer is the part of the event loop that the manager uses.
type doer interface {
	Do(ctx context.Context, ev eventloop.Event) (*eventloop.Record, error)
}

// planner is the part of the event loop that plans events.
type planner interface {
	Plan(ctx context.Context, ev eventloop.Event, without ...string) (*eventloop.Planned, error)
}

// Config configures a [Manager]. Functions without a default are required. Without Loop the manager rejects each event.
type Config struct {
	Loop doer

	// Planner is required for Plan only.
	Planner planner

	// Inspect identifies a network namespace. It rejects other files and the agent's own namespace.
	Inspect func(ctx context.Context, path string) (pod.Netns, error)
	// LinkExists looks for a link in the namespace and returns its alias.
	LinkExists func(ctx context.Context, netns pod.Netns, name string) (alias string, exists bool, err error)
	// Annotations fetches a pod's annotations if the runtime did not send them; from names their source. Default: none.
	Annotations func(ctx context.Context, id pod.ID) (annotations map[string]string, from string, err error)
	// Selected returns the interfaces that a pod selects by NetworkAttachmentDefinitions. Default: none.
	Selected func(ctx context.Context, ev *pod.AddPod) ([]pod.InterfaceRequest, error)
	// Learn reads what network policies need to know of a new pod; nil: nothing.
	Learn func(ctx context.Context, id pod.ID)
	// Forget forgets what Learn read for a pod that could not be connected; nil if Learn is.
	Forget func(id pod.ID)
	// Grants returns the devices of the pod's containers. It is called if the pod requests a memif. Default: none.
	Grants func(ctx context.Context, id pod.ID) ([]pod.Grant, error)
	// Claims returns the devices of the pod's prepared claims. Default: none.
	Claims func(ctx context.Context, id pod.ID) ([]pod.Grant, error)
	// Verify compares the kernel and the dataplane with the attachment.
	Verify func(ctx context.Context, a *pod.Attachment) ([]Difference, error)
	// Later marks the plugin chain of the attachment's ADD as finished and returns the MTUs that later plugins of the chain
	// set, by interface.
	Later func(a *pod.Attachment) (mtus map[string]int)
	// IsGone reports whether the network namespace of an attachment is gone.
	IsGone func(pod.Netns) bool
	// Void deletes a queued DEL of the key before an ADD.
	Void func(ctx context.Context, key pod.Key) error
	// Refillable reports whether Refill may help an ADD that failed with an error. The loop calls it. Default: never.
	Refillable func(refused error) bool
	// Refill requests more addresses for the node after an ADD failed with refused, and waits for them. It returns nil if the ADD can be
	// retried, else the error of the ADD. Required with Refillable.
	Refill func(ctx context.Context, ev *pod.AddPod, refused error) error
	// Ready returns the reason why pods cannot be served yet, or nil (default).
	Ready func() error
	// Started reports whether the first resync has ended. Default: true.
	Started func() bool
	// Paused reports whether new pods are paused, and why. Default: false.
	Paused func() (reason string, paused bool)
	// Exhausted returns the reason why the network default has no free address, or "" (default). STATUS reports it.
	Exhausted func() string
	// Observe receives the outcomes of attachments. It must not block the loop or the runtime. Default: ignored.
	Observe func(Outcome)

	Grace time.Duration // minimum age for a GC; default 30 s, negative: none
	Now   func() time.Time
	Log   *slog.Logger
}

// noLoop replaces the event loop while the agent has none: it prepares an ADD, whose errors are more specific, and rejects
// each event.
type noLoop struct{}

// Do rejects the event.
func (noLoop) Do(ctx context.Context, ev eventloop.Event) (*eventloop.Record, error) {
	if add, is := ev.(*pod.AddPod); is {
		if err := add.Load(ctx); err != nil {
			return nil, err
		}
	}
	return nil, eventloop.ErrNotReady
}

func (c Config) withDefaults() Config {
	if c.Loop == nil {
		c.Loop = noLoop{}
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.Started == nil {
		c.Started = func() bool { return true }
	}
	if c.Paused == nil {
		c.Paused = func() (string, bool) { return "", false }
	}
	if c.Exhausted == nil {
		c.Exhausted = func() string { return "" }
	}
	if c.Observe == nil {
		c.Observe = func(Outcome) {}
	}
	if c.Refillable == nil {
		c.Refillable = func(error) bool { return false }
	}
	return c
}

// Happening is the kind of an Outcome.
type Happening string

// Kinds of outcomes.
const (
	Added   Happening = "added"   // the attachment is complete and durable
	Removed Happening = "removed" // the attachment was deleted, for any reason
	Failed  Happening = "failed"  // an ADD failed; an older attachment of the key may exist
)

// Outcome is a change of an attachment, or a failed ADD.
type Outcome struct {
	Happening Happening
	Key       pod.Key
	Pod       pod.ID

	Attachment *pod.Attachment // of Added and Removed: a copy

	// Of Failed: code and text of the reply, and the event's record, nil if the ADD was rejected before the loop.
	Code   uint
	Text   string
	Record *eventloop.Record
}

// added reports a newly complete attachment.
func (m *Manager) added(a *pod.Attachment) {
	m.config.Observe(Outcome{Happening: Added, Key: a.Key, Pod: a.Pod, Attachment: clone(a)})
}

// failed reports a failed ADD with the reply of the runtime.
func (m *Manager) failed(key pod.Key, id pod.ID, err error, rec *eventloop.Record) {
	reply := replyError(err, rec)
	m.config.Observe(Outcome{Happening: Failed, Key: key, Pod: id, Code: uint(reply.GetCode()), Text: reply.GetMsg(), Record: rec})
}

// refused reports an ADD that did not become an event.
func (m *Manager) refused(req *weftv1.AddRequest, err error) {
	if key, wrong := keyOf(req.GetAttachment()); wrong == nil {
		m.failed(key, idOf(req.GetPod()), err, nil)
	}
}
