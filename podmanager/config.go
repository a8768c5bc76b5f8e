package podmanager

import (
	"context"
	"log/slog"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
)

// defaultGrace is for how long after its ADD a collection spares an attachment that
// the runtime does not list: its list may be older than the attachment.
const defaultGrace = 30 * time.Second

// doer is the event loop, seen from here.
type doer interface {
	Do(ctx context.Context, ev eventloop.Event) (*eventloop.Record, error)
}

// Config is what a [Manager] is made of. Inspect is needed; a nil function is asked nothing, and without Loop no
// ADD is served.
type Config struct {
	Loop doer

	// Inspect opens the network namespace once and says which one it is. It refuses a path that is no network namespace, and the agent's own.
	Inspect func(ctx context.Context, path string) (pod.Netns, error)
	// LinkExists looks for a link in the namespace and returns its alias.
	LinkExists func(ctx context.Context, netns pod.Netns, name string) (alias string, exists bool, err error)
	// Annotations asks for a pod's annotations where the runtime did not give them; from names who answered.
	Annotations func(ctx context.Context, id pod.ID) (annotations map[string]string, from string, err error)
	// Selected looks up what a pod selects by NetworkAttachmentDefinitions.
	Selected func(ctx context.Context, ev *pod.AddPod) ([]pod.InterfaceRequest, error)
	// Grants asks kubelet which devices it gave the pod's containers, where a memif is wanted.
	Grants func(ctx context.Context, id pod.ID) ([]pod.Grant, error)
	// Verify compares the kernel and the dataplane with the attachment.
	Verify func(ctx context.Context, a *pod.Attachment) ([]Difference, error)
	// Later ends the chain of plugins that the attachment's ADD was part of, if it is not known to be at its end, and gives the
	// MTUs that later plugins of it set, by interface.
	Later func(a *pod.Attachment) (mtus map[string]int)
	// IsGone reports whether the network namespace of an attachment is gone.
	IsGone func(pod.Netns) bool
	// Void takes a queued DEL of the key back, before an ADD of it.
	Void func(ctx context.Context, key pod.Key) error
	// Refill gets the node the addresses for the lack of which an ADD failed. It returns nil if the ADD is to be tried again,
	// else its error.
	Refill func(ctx context.Context, ev *pod.AddPod, refused error) error
	// Ready says why pods cannot be served yet; nil when they can.
	Ready func() error
	// Started says whether the first resync has ended.
	Started func() bool
	// Paused says whether, and why, new pods are held up.
	Paused func() (reason string, paused bool)
	// Exhausted says why no pod can get an address of the network default; "" if one can. STATUS reports it. Nil: it does not.
	Exhausted func() string
	// Observe is told what happens to attachments. It must not wait: the loop or the runtime does meanwhile.
	Observe func(Outcome)

	Grace time.Duration // default 30 s; below 0 is none
	Now   func() time.Time
	Log   *slog.Logger
}

// noLoop stands for the event loop of an agent that is not made yet: it refuses what cannot be prepared, and everything else.
type noLoop struct{}

// Do refuses the event.
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
	if c.Refill == nil {
		c.Refill = func(_ context.Context, _ *pod.AddPod, refused error) error { return refused }
	}
	if c.Later == nil {
		c.Later = func(*pod.Attachment) map[string]int { return nil }
	}
	if c.IsGone == nil {
		c.IsGone = func(pod.Netns) bool { return false }
	}
	if c.Void == nil {
		c.Void = func(context.Context, pod.Key) error { return nil }
	}
	return c
}
