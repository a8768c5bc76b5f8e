package podmanager

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/proto/deletequeue"
)

// defaultGrace is the minimum age of an attachment that a GC deletes: the runtime's list may be older than the
// attachment.
const defaultGrace = 30 * time.Second

// Loop is the part of the event loop that the manager uses.
type Loop interface {
	Do(ctx context.Context, ev eventloop.Event) (*eventloop.Record, error)
	Plan(ctx context.Context, ev eventloop.Event, without ...string) (*eventloop.Planned, error)
}

// Node answers the questions about this machine.
type Node interface {
	// Inspect identifies a network namespace. It rejects other files and the agent's own namespace.
	Inspect(ctx context.Context, path string) (pod.Netns, error)
	// LinkAlias looks for a link in the namespace and returns its alias.
	LinkAlias(ctx context.Context, netns pod.Netns, name string) (alias string, exists bool, err error)
	// IsGone reports whether a network namespace is gone.
	IsGone(netns pod.Netns) bool
	// Verify compares the kernel and the dataplane with the attachment.
	Verify(ctx context.Context, a *pod.Attachment) ([]Difference, error)
}

// Admission decides whether pods are served.
type Admission interface {
	// Ready returns the reason why pods cannot be served yet, or nil.
	Ready() error
	// Started reports whether the first resync has ended.
	Started() bool
	// Paused reports whether new pods are paused, and why.
	Paused() (reason string, paused bool)
	// Exhausted returns the reason why the network default has no free address, or "". STATUS reports it.
	Exhausted() string
}

// Cluster answers the questions about a pod that only the API server knows.
type Cluster interface {
	// Annotations fetches a pod's annotations if the runtime did not send them; from names their source.
	Annotations(ctx context.Context, id pod.ID) (annotations map[string]string, from string, err error)
	// Selected returns the interfaces that a pod selects by NetworkAttachmentDefinitions.
	Selected(ctx context.Context, request *pod.Request) ([]pod.InterfaceRequest, error)
	// Group returns the group of a container, or pod.UnknownGroup.
	Group(id pod.ID, container string) int
	// Learn reads what network policies need to know of a new pod.
	Learn(ctx context.Context, id pod.ID)
	// Forget forgets what Learn read for a pod that could not be connected.
	Forget(id pod.ID)
}

// Watch is what the API server has shown already.
type Watch interface {
	// Shown returns the annotations of a pod.
	Shown(id pod.ID) (annotations map[string]string, isShown bool)
}

// IPAMClaims are the objects of the API server that hold addresses of pods.
type IPAMClaims interface {
	// IPAMClaim returns a claim of the namespace of a pod.
	IPAMClaim(ctx context.Context, namespace, name string) (pod.IPAMClaim, error)
	// FindIPAMClaim is IPAMClaim for a claim that may not exist.
	FindIPAMClaim(ctx context.Context, namespace, name string) (claim pod.IPAMClaim, exists bool, err error)
	// ReplicaClaim returns the claim of an interface with the option persistentIPs, which is made for the pod.
	ReplicaClaim(ctx context.Context, id pod.ID, name string) (pod.IPAMClaim, error)
	// Assign writes the addresses of an interface of a pod to its claim, which has none.
	Assign(ctx context.Context, claim pod.IPAMClaim, podName string, addresses []netip.Prefix) error
}

// Refiller gets more addresses for the node.
type Refiller interface {
	// Refillable reports whether Refill may help an ADD that failed with an error. The loop calls it.
	Refillable(refused error) bool
	// Refill requests more addresses after an ADD failed with refused, and waits for them until ctx ends. It returns
	// nil if the ADD can be retried, else the error of the ADD.
	Refill(ctx context.Context, request *pod.Request, refused error) error
}

// Devices are the devices of pods.
type Devices interface {
	// Devices returns the devices of the pod's containers.
	Devices(ctx context.Context, id pod.ID) ([]pod.Grant, error)
	// Claimed returns the devices of the pod's prepared claims.
	Claimed(ctx context.Context, id pod.ID) ([]pod.Grant, error)
}

// Chains knows what later plugins of the runtime's chain changed.
type Chains interface {
	// End marks the plugin chain of the attachment's ADD as finished and returns the MTUs that later plugins of the
	// chain set, by interface.
	End(a *pod.Attachment) (mtus map[string]int)
}

// Announcer tells the neighbours of a new attachment its addresses, if nothing else does.
type Announcer interface {
	Announce(ctx context.Context, a *pod.Attachment)
}

// DeleteQueue has the DELs that came while the agent was not running.
type DeleteQueue interface {
	Remove(ctx context.Context, key deletequeue.Key) error
}

// Config configures a [Manager]. Fields without a default are required. Without Loop the manager rejects each event.
type Config struct {
	Loop      Loop
	Node      Node
	Admission Admission  // default: all pods are served
	Cluster   Cluster    // default: a node without a cluster
	Watch     Watch      // default: nothing is shown
	Claims    IPAMClaims // nil: there are none
	Refiller  Refiller   // default: the node gets no more addresses
	Devices   Devices    // default: no pod has devices
	Announcer Announcer  // default: the kernel announces taps and veths
	Chains    Chains
	Queue     DeleteQueue

	// Observe receives the outcomes of attachments. It must not block the loop or the runtime. Default: ignored.
	Observe func(Outcome)

	RefillTime time.Duration // how long an ADD waits for addresses of all its networks; default 15 s

	Grace time.Duration // minimum age for a GC; default 30 s, negative: none
	Now   func() time.Time
	Log   *slog.Logger
}

// noLoop is the event loop of an agent that is still starting. The error of a refused ADD is more specific than its
// own.
type noLoop struct{}

// Do rejects the event.
func (noLoop) Do(_ context.Context, ev eventloop.Event) (*eventloop.Record, error) {
	if add, is := ev.(*pod.AddPod); is && add.Refused != nil {
		return nil, add.Refused
	}
	return nil, eventloop.ErrNotReady
}

// Plan rejects the event.
func (noLoop) Plan(context.Context, eventloop.Event, ...string) (*eventloop.Planned, error) {
	return nil, eventloop.ErrNotReady
}

// open is the admission of a manager without conditions.
type open struct{}

func (open) Ready() error           { return nil }
func (open) Started() bool          { return true }
func (open) Paused() (string, bool) { return "", false }
func (open) Exhausted() string      { return "" }

// standalone is the cluster of a node without one.
type standalone struct{}

func (standalone) Annotations(context.Context, pod.ID) (map[string]string, string, error) {
	return nil, "none", nil
}

func (standalone) Announce(context.Context, *pod.Attachment) {}

func (standalone) Shown(pod.ID) (map[string]string, bool) { return nil, false }

func (standalone) Selected(context.Context, *pod.Request) ([]pod.InterfaceRequest, error) {
	return nil, nil
}
func (standalone) Group(pod.ID, string) int                                      { return pod.UnknownGroup }
func (standalone) Learn(context.Context, pod.ID)                                 {}
func (standalone) Forget(pod.ID)                                                 {}
func (standalone) Refillable(error) bool                                         { return false }
func (standalone) Refill(_ context.Context, _ *pod.Request, refused error) error { return refused }

// noDevices is a node without devices.
type noDevices struct{}

func (noDevices) Devices(context.Context, pod.ID) ([]pod.Grant, error) { return nil, nil }
func (noDevices) Claimed(context.Context, pod.ID) ([]pod.Grant, error) { return nil, nil }

func (c Config) withDefaults() Config {
	if c.Loop == nil {
		c.Loop = noLoop{}
	}
	if c.Admission == nil {
		c.Admission = open{}
	}
	if c.Cluster == nil {
		c.Cluster = standalone{}
	}
	if c.Watch == nil {
		c.Watch = standalone{}
	}
	if c.Refiller == nil {
		c.Refiller = standalone{}
	}
	if c.Devices == nil {
		c.Devices = noDevices{}
	}
	if c.Announcer == nil {
		c.Announcer = standalone{}
	}
	if c.Observe == nil {
		c.Observe = func(Outcome) {}
	}
	c.RefillTime = cmp.Or(c.RefillTime, 15*time.Second)
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
