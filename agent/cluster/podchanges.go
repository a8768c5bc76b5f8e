package cluster

import (
	"context"
	"time"

	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/k8s/events"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
)

// Reasons of events on pods whose annotations were edited.
const (
	reasonInterfacesChanged = "WeftInterfacesChanged"
	reasonChangeFailed      = "WeftChangeFailed"
)

// podChanges changes the interfaces of running pods, and tells their authors.
type podChanges struct {
	pods *podmanager.Manager
	tell func(events.Note)
}

// apply gives a pod the interfaces that its annotations request. After an error the caller repeats it.
func (c *podChanges) apply(ctx context.Context, id pod.ID, annotations map[string]string) error {
	changes, err := c.pods.Edits().Apply(ctx, id, annotations)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		text := line.Of(err.Error(), line.Cause) + "; the pod keeps the interfaces that it has"
		c.note(id, events.Warning, reasonChangeFailed, text)
		return err
	case !changes.IsZero():
		c.note(id, events.Normal, reasonInterfacesChanged, changes.String())
	}
	return nil
}

func (c *podChanges) note(id pod.ID, kind, reason, text string) {
	c.tell(events.Note{
		Pod: id, Type: kind, Reason: reason, At: time.Now(), Text: func() string { return text },
	})
}
