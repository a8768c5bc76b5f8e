package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weftnet/weft/agent/garbage"
	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	"github.com/weftnet/weft/proto/deletequeue"
)

// upkeep handles deletions that were queued while the agent was not running, collects sandboxes that vanished without a DEL, and reports pods
// whose objects cannot be read.
func (a *Agent) upkeep(ctx context.Context) error {
	queued := a.queue.Watch(ctx)
	polls := time.NewTicker(min(a.config.Audit, garbage.PollPeriod))
	defer polls.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-queued:
			a.drain(ctx)
		case <-polls.C:
			a.vanished.Poll(ctx, a.pods.Attachments())
			a.unread.Poll(a.pods.Attachments())
		}
	}
}

// drain handles the delete queue. The plugin writes under a shared lock, so each entry is complete.
func (a *Agent) drain(ctx context.Context) {
	unlock, err := a.queue.Lock(ctx)
	if err != nil {
		a.log.Warn("delete queue not drained", "err", err)
		return
	}
	defer unlock()
	a.drainLocked(ctx)
}

func (a *Agent) drainLocked(ctx context.Context) {
	done, failed, err := a.queue.Drain(ctx, func(e deletequeue.Entry) error {
		key := pod.Key{Network: e.Network, ContainerID: e.ContainerID, IfName: e.IfName}
		a.pods.CancelAdds(key)
		_, err := a.loop.Do(ctx, &pod.DeletePod{Key: key, Reason: "queued DEL"})
		if errors.Is(err, eventloop.ErrStopped) || errors.Is(err, eventloop.ErrNotReady) || ctx.Err() != nil {
			return fmt.Errorf("%w: %w", deletequeue.ErrNotNow, err)
		}
		return err
	})
	switch {
	case err != nil:
		a.log.Error("delete queue not drained", "err", err)
	case done+failed > 0:
		a.log.Info("delete queue drained", "done", done, "failed", failed)
	}
}

// deleteVanished deletes an attachment whose sandbox is gone.
func (a *Agent) deleteVanished(ctx context.Context, at *pod.Attachment, reason string) error {
	_, err := a.loop.Do(ctx, &pod.DeletePod{Key: at.Key, ID: at.Pod, Reason: reason})
	return err
}
