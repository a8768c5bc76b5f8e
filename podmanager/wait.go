package podmanager

import (
	"context"
	"errors"
	"time"

	"github.com/weftnet/weft/pod"
)

// call is an ADD under way. Its events come and go: while it waits for addresses it has no event.
type call struct {
	pod    string // and its interface; "": not known
	ended  context.Context
	cancel context.CancelCauseFunc
	until  time.Time // when it stops to wait for addresses; zero: it has not waited yet
}

// newCall returns a call that ends with ctx, or if it is cancelled.
func newCall(ctx context.Context, ev *pod.AddPod) *call {
	c := &call{pod: ev.Pod()}
	c.ended, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return c
}

// err returns why the call is cancelled, or nil.
func (c *call) err() error { return context.Cause(c.ended) }

// bound returns ctx, which then also ends when the call is cancelled.
func (c *call) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ended, func() { cancel(c.err()) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Reasons to cancel an ADD.
var (
	errDeleted  = errors.New("a DEL for it arrived")
	errReplaced = errors.New("the pod has a newer sandbox")
	errStopping = errors.New("the agent stops")
)

// await waits until the addresses that an ADD lacked may be there. It returns nil if the ADD can be repeated, else the
// error of the ADD.
func (m *Manager) await(ctx context.Context, c *call, ev *pod.AddPod, lacked error) error {
	if c.until.IsZero() {
		c.until = time.Now().Add(m.config.RefillTime)
	}
	ctx, end := c.bound(ctx)
	defer end()
	ctx, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	err := m.config.Refiller.Refill(ctx, ev, lacked)
	if cause := c.err(); cause != nil {
		return pod.Errorf(pod.CodeTryAgain, "%s: cancelled while it waited for addresses: %w", ev, cause)
	}
	return err
}
