package pods

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weftnet/weft/k8s/informer"
	"github.com/weftnet/weft/pod"
)

// The times of edits.
const (
	editPause   = 200 * time.Millisecond // between an edit and its application: edits come in bursts
	editRetry   = time.Second            // the first pause after a failure
	editRetries = 5 * time.Minute        // the longest pause after failures
	editPoll    = 5 * time.Second        // poll of the permission
	editsAtOnce = 16                     // one may wait for addresses: those of a tenant must not delay all others
)

// Edits applies the annotations of running pods after they were edited, also if the edit came while no agent ran. Apply
// must leave a pod alone that has what its annotations request.
type Edits struct {
	apply       func(ctx context.Context, id pod.ID, annotations map[string]string) error
	isPermitted func() bool
	keys        informer.Queue[string] // pods by namespace and name

	mu      sync.Mutex
	latest  map[string]annotated
	waiting map[string]bool // pods that were not compared, because edits were not permitted
}

// annotated is a pod with its annotations, as the API server showed it last.
type annotated struct {
	id          pod.ID
	annotations map[string]string
}

// NewEdits returns edits that are applied while Run runs and isPermitted returns true.
func NewEdits(
	isPermitted func() bool, apply func(ctx context.Context, id pod.ID, annotations map[string]string) error,
) *Edits {
	return &Edits{
		apply:       apply,
		isPermitted: isPermitted,
		keys:        informer.NewQueue[string](editRetry, editRetries),
		latest:      make(map[string]annotated),
		waiting:     make(map[string]bool),
	}
}

// Show takes the annotations of a pod; nil: it is gone.
func (e *Edits) Show(id pod.ID, annotations map[string]string) {
	name := id.String()
	e.mu.Lock()
	was, isKnown := e.latest[name]
	if annotations == nil {
		delete(e.latest, name)
		delete(e.waiting, name)
	} else {
		e.latest[name] = annotated{id, annotations}
	}
	e.mu.Unlock()
	switch {
	case annotations == nil:
		e.keys.Forget(name)
	case !isKnown || was.id != id || areEdited(was.annotations, annotations):
		e.keys.Forget(name) // a failure before the edit says nothing about it
		e.keys.AddAfter(name, editPause)
	}
}

func areEdited(before, after map[string]string) bool {
	return (&pod.Attachment{Annotations: before}).IsEdited(after)
}

// Compare applies the annotations of a pod soon: they may have been edited during its ADD.
func (e *Edits) Compare(id pod.ID) { e.keys.AddAfter(id.String(), editPause) }

// Run applies edits until ctx ends.
func (e *Edits) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for range editsAtOnce {
		group.Go(func() error { return informer.Work(ctx, e.keys, e.handle) })
	}
	group.Go(func() error { return e.awaitPermission(ctx) })
	return group.Wait()
}

// awaitPermission compares the waiting pods when edits are permitted.
func (e *Edits) awaitPermission(ctx context.Context) error {
	tick := time.NewTicker(editPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for _, name := range e.whoWaits() {
			e.keys.Add(name)
		}
	}
}

// whoWaits returns the waiting pods, which then do not wait any more; none while edits are not permitted.
func (e *Edits) whoWaits() (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 || !e.isPermitted() {
		return nil
	}
	for name := range e.waiting {
		names = append(names, name)
	}
	clear(e.waiting)
	return names
}

// handle applies the annotations of one pod. It returns an error if it must be repeated.
func (e *Edits) handle(ctx context.Context, name string) error {
	isPermitted := e.isPermitted()
	e.mu.Lock()
	latest, isKnown := e.latest[name]
	if isKnown && !isPermitted {
		e.waiting[name] = true
	}
	e.mu.Unlock()
	if !isKnown || !isPermitted {
		return nil
	}
	return e.apply(ctx, latest.id, latest.annotations)
}
