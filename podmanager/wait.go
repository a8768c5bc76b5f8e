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

// Reasons to cancel an ADD.
var (
	errDeleted  = errors.New("a DEL for it arrived")
	errReplaced = errors.New("the pod has a newer sandbox")
)

// await waits until the addresses that an ADD lacked may be there. It returns nil if the ADD can be repeated, else the
// error of the ADD.
func (m *Manager) await(ctx context.Context, c *call, ev *pod.AddPod, lacked error) error {
	if c.until.IsZero() {
		c.until = time.Now().Add(m.config.RefillTime)
	}
	ctx, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	defer context.AfterFunc(c.ended, cancel)()
	err := m.config.Refiller.Refill(ctx, ev, lacked)
	if cause := c.err(); cause != nil {
		return pod.Errorf(pod.CodeTryAgain, "%s: cancelled while it waited for addresses: %w", ev, cause)
	}
	return err
}
