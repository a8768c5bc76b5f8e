package cluster

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/k8s/nodeview"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// Reasons of events on pods whose annotations were edited.
const (
	reasonInterfacesChanged = "WeftInterfacesChanged"
	reasonChangeFailed      = "WeftChangeFailed"
)

// The times of changes.
const (
	changePause   = 200 * time.Millisecond // between an edit and the change: edits come in bursts
	changeRetry   = time.Second            // the first pause after a failure
	changeRetries = 5 * time.Minute        // the longest pause after failures
	changePoll    = 5 * time.Second        // poll of the switch in the cluster
	changesAtOnce = 2                      // one may wait for addresses
)

// PodChanges changes the interfaces of running pods after their annotations were edited, also if the edit came while no
// agent ran.
type PodChanges struct {
	cluster *nodeview.Cluster
	change  func(ctx context.Context, id pod.ID, annotations map[string]string) (pod.Changes, error)
	tell    func(events.Note)
	log     *slog.Logger
	keys    informer.Queue[string] // pods by namespace and name

	mu     sync.Mutex
	latest map[string]annotated
}

// annotated is a pod with its annotations, as the API server showed it last.
type annotated struct {
	id          pod.ID
	annotations map[string]string
}

// newPodChanges returns changes that happen while Run runs.
func newPodChanges(cluster *nodeview.Cluster, log *slog.Logger) *PodChanges {
	return &PodChanges{
		cluster: cluster,
		log:     log,
		keys:    informer.NewQueue[string](changeRetry, changeRetries),
		latest:  make(map[string]annotated),
	}
}

// Show takes the annotations of a pod; nil: it is gone.
func (c *PodChanges) Show(id pod.ID, annotations map[string]string) {
	name := id.String()
	c.mu.Lock()
	was, isKnown := c.latest[name]
	if annotations == nil {
		delete(c.latest, name)
	} else {
		c.latest[name] = annotated{id, annotations}
	}
	c.mu.Unlock()
	switch {
	case annotations == nil:
		c.keys.Forget(name)
	case !isKnown || was.id != id || areEdited(was.annotations, annotations):
		c.keys.Forget(name) // what failed before the edit says nothing about it
		c.keys.AddAfter(name, changePause)
	}
}

func areEdited(before, after map[string]string) bool {
	return (&pod.Attachment{Annotations: before}).IsEdited(after)
}

// Observe compares the annotations of an added pod: they may have been edited during its ADD.
func (c *PodChanges) Observe(o podmanager.Outcome) {
	if o.Happening == podmanager.Added && !o.Pod.IsZero() {
		c.keys.AddAfter(o.Pod.String(), changePause)
	}
}

// IsOn reports whether the cluster permits changes of running pods.
func (c *PodChanges) IsOn() bool { return c.cluster.View().Switches.InterfaceChanges }

// Run changes pods until ctx ends. All attachments are restored.
func (c *PodChanges) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range changesAtOnce {
		group.Go(func() error { return informer.Work(ctx, c.keys, c.handle) })
	}
	group.Go(func() error { return c.followSwitch(ctx) })
	return group.Wait()
}

// followSwitch compares all pods when changes are permitted again, and when the cluster is known.
func (c *PodChanges) followSwitch(ctx context.Context) error {
	tick := time.NewTicker(changePoll)
	defer tick.Stop()
	wasOn := false
	for {
		isOn := c.isPermitted()
		if isOn && !wasOn {
			c.compareAll()
		}
		wasOn = isOn
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// isPermitted reports whether the API server, not only the memory of an earlier run, permits changes.
func (c *PodChanges) isPermitted() bool { return c.IsOn() && c.cluster.View().Complete }

func (c *PodChanges) compareAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.latest {
		c.keys.Add(name)
	}
}

// handle changes one pod. It returns an error if it must be repeated.
func (c *PodChanges) handle(ctx context.Context, name string) error {
	c.mu.Lock()
	latest, isKnown := c.latest[name]
	c.mu.Unlock()
	if !isKnown || !c.isPermitted() {
		return nil
	}
	changes, err := c.change(ctx, latest.id, latest.annotations)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		text := line.Of(err.Error(), line.Cause) + "; the pod keeps the interfaces that it has"
		c.note(latest.id, events.Warning, reasonChangeFailed, text)
		return err
	case !changes.IsZero():
		c.note(latest.id, events.Normal, reasonInterfacesChanged, changes.String())
	}
	return nil
}

func (c *PodChanges) note(id pod.ID, kind, reason, text string) {
	c.tell(events.Note{
		Pod: id, Type: kind, Reason: reason, At: time.Now(), Text: func() string { return text },
	})
}
