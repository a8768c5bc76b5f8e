package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weftnet/weft/agent/drift"
	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/podmanager"
	"github.com/weftnet/weft/proto/deletequeue"
)

// deletions works without calls of the runtime: DELs that were queued while the agent was not running, sandboxes that
// vanished without a DEL, and pods with objects that cannot be read.
type deletions struct {
	queue    *deletequeue.Queue
	loop     *eventloop.Loop
	pods     *podmanager.Manager
	vanished *garbage.Collector
	unread   *drift.Unread
	period   time.Duration // between two looks at the sandboxes
	log      *slog.Logger
}

// run works until ctx ends.
func (d *deletions) run(ctx context.Context) error {
	queued := d.queue.Watch(ctx)
	polls := time.NewTicker(d.period)
	defer polls.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-queued:
			if err := d.drain(ctx); err != nil {
				d.log.Warn("delete queue not drained", "err", err)
			}
		case <-polls.C:
			d.vanished.Poll(ctx, d.pods.Attachments())
			d.unread.Poll(d.pods.Attachments())
		}
	}
}

// drain handles the delete queue. The plugin writes under a shared lock, so each entry is complete.
func (d *deletions) drain(ctx context.Context) error {
	unlock, err := d.queue.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock the delete queue: %w", err)
	}
	defer unlock()
	d.drainLocked(ctx)
	return nil
}

func (d *deletions) drainLocked(ctx context.Context) {
	done, failed, err := d.queue.Drain(ctx, func(e deletequeue.Entry) error {
		key := pod.Key{Network: e.Network, ContainerID: e.ContainerID, IfName: e.IfName}
		d.pods.CancelAdds(key)
		_, err := d.loop.Do(ctx, &pod.DeletePod{Key: key, Reason: "queued DEL"})
		if errors.Is(err, eventloop.ErrStopped) || errors.Is(err, eventloop.ErrNotReady) || ctx.Err() != nil {
			return fmt.Errorf("%w: %w", deletequeue.ErrNotNow, err)
		}
		return err
	})
	switch {
	case err != nil:
		d.log.Error("delete queue not drained", "err", err)
	case done+failed > 0:
		d.log.Info("delete queue drained", "done", done, "failed", failed)
	}
}

// deleteVanished deletes the attachment of a sandbox that is gone.
func (d *deletions) deleteVanished(ctx context.Context, at *pod.Attachment, reason string) error {
	_, err := d.loop.Do(ctx, &pod.DeletePod{Key: at.Key, ID: at.Pod, Reason: reason})
	return err
}
