package podmanager

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

var errNoBlock = errors.New("this node has no block of pool blue")

// waiter is a Refill of a node without addresses, until it is told to end.
type waiter struct {
	*node
	begun chan context.Context // of each Refill
	end   chan error           // result of Refill
}

// newWaiter returns a node whose ADDs lack addresses until a Refill returns nil.
func newWaiter(t *testing.T) *waiter {
	t.Helper()
	w := &waiter{node: newNode(t), begun: make(chan context.Context, 8), end: make(chan error)}
	var refilled atomic.Bool
	w.onConnect = func(_ context.Context, ev *pod.AddPod) error {
		if ev.Key.ContainerID != "other" && !refilled.Load() {
			return errNoBlock
		}
		return nil
	}
	w.cluster.refillable = func(err error) bool { return errors.Is(err, errNoBlock) }
	w.cluster.refill = func(ctx context.Context, _ *pod.Request, refused error) error {
		w.begun <- ctx
		select {
		case <-ctx.Done():
			return refused
		case err := <-w.end:
			refilled.Store(err == nil)
			return err
		}
	}
	return w
}

// adds begins an ADD and returns the channel of its reply.
func (w *waiter) adds(t *testing.T, req *weftv1.AddRequest) <-chan *weftv1.AddReply {
	t.Helper()
	replies := make(chan *weftv1.AddReply, 1)
	go func() {
		reply, _ := w.Add(t.Context(), req)
		replies <- reply
	}()
	return replies
}

// soon receives from a channel within a minute.
func soon[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(time.Minute):
		t.Fatal("timeout waiting for " + what)
	}
	return v
}

// failedRecords lists the errors of all records.
func (w *waiter) failedRecords() (errs []string) {
	for _, r := range w.loop.History(0) {
		if r.Err != "" {
			errs = append(errs, r.Err)
		}
	}
	return errs
}

func TestAddWaitsForAddressesWithoutAFailedEventWhileOtherPodsGoOn(t *testing.T) {
	w := newWaiter(t)
	reply := w.adds(t, addOf("c1", "/run/netns/a"))
	soon(t, "the wait", w.begun)
	other := addOf("other", "/run/netns/b")
	other.Pod = &weftv1.Pod{Namespace: "shop", Name: "cart-1", Uid: "u2"}
	if got := soon(t, "the ADD of another pod", w.adds(t, other)); got.GetError() != nil {
		t.Errorf("ADD of another pod failed: %v", got.GetError())
	}
	w.end <- nil
	if got := soon(t, "the ADD", reply); got.GetError() != nil {
		t.Errorf("ADD failed: %v", got.GetError())
	}
	w.want(t, "c1", "other")
	if errs := w.failedRecords(); len(errs) > 0 {
		t.Errorf("failed events: %q", errs)
	}
}

func TestFailedWaitForAddressesIsOneFailedEventWithItsReason(t *testing.T) {
	w := newWaiter(t)
	reply := w.adds(t, addOf("c1", "/run/netns/a"))
	soon(t, "the wait", w.begun)
	w.end <- pod.Errorf(pod.CodeTryAgain, "node n1 got no block of network blue in 15s")
	wantError(t, soon(t, "the ADD", reply).GetError(), pod.CodeTryAgain, "node n1 got no block of network blue in 15s")
	if errs := w.failedRecords(); len(errs) != 1 || !strings.Contains(errs[0], "node n1 got no block") {
		t.Errorf("failed events: %q", errs)
	}
	w.want(t)
}

func TestDeleteEndsTheWaitForAddresses(t *testing.T) {
	w := newWaiter(t)
	req := addOf("c1", "/run/netns/a")
	reply := w.adds(t, req)
	waits := soon(t, "the wait", w.begun)
	if _, err := w.Delete(t.Context(), &weftv1.DeleteRequest{
		Caller:     req.Caller,
		Attachment: req.Attachment,
		Pod:        req.Pod,
	}); err != nil {
		t.Fatal(err)
	}
	soon(t, "the end of the wait", waits.Done())
	wantError(t, soon(t, "the ADD", reply).GetError(), pod.CodeTryAgain,
		"cancelled while it waited for addresses: a DEL for it arrived")
	w.want(t)
}

// deletesAt is a loop to which a DEL comes right before an attempt of an ADD.
type deletesAt struct {
	Loop
	attempt int
	delete  func()
}

func (d *deletesAt) Do(ctx context.Context, ev eventloop.Event) (*eventloop.Record, error) {
	if _, adds := ev.(*pod.AddPod); adds {
		if d.attempt--; d.attempt == 0 {
			d.delete()
		}
	}
	return d.Loop.Do(ctx, ev)
}

// Addresses may come at the moment of the DEL: the ADD must not connect a sandbox that is gone.
func TestAddIsNotResumedAfterItsDelete(t *testing.T) {
	w := newWaiter(t)
	req := addOf("c1", "/run/netns/a")
	w.attempts.loop = &deletesAt{Loop: w.loop, attempt: 2, delete: func() {
		if _, err := w.Delete(t.Context(), &weftv1.DeleteRequest{
			Caller:     req.Caller,
			Attachment: req.Attachment,
			Pod:        req.Pod,
		}); err != nil {
			t.Error(err)
		}
	}}
	reply := w.adds(t, req)
	soon(t, "the wait", w.begun)
	w.end <- nil
	wantError(t, soon(t, "the ADD", reply).GetError(), pod.CodeTryAgain, "cancelled: a DEL for it arrived")
	w.want(t)
}

func TestNewerSandboxEndsTheWaitOfAnOlderOne(t *testing.T) {
	w := newWaiter(t)
	older := w.adds(t, addOf("c1", "/run/netns/a"))
	soon(t, "the wait", w.begun)
	newer := w.adds(t, addOf("c2", "/run/netns/b"))
	wantError(t, soon(t, "the older ADD", older).GetError(), pod.CodeTryAgain, "the pod has a newer sandbox")
	soon(t, "the wait of the newer sandbox", w.begun)
	w.end <- nil
	if got := soon(t, "the newer ADD", newer); got.GetError() != nil {
		t.Errorf("ADD failed: %v", got.GetError())
	}
	w.want(t, "c2")
}

// A pod with several new networks lacks an address of one network after the other.
func TestWaitsOfAnADDHaveOneDeadline(t *testing.T) {
	n := newNode(t)
	n.onConnect = func(context.Context, *pod.AddPod) error { return errNoBlock }
	n.cluster.refillable = func(err error) bool { return errors.Is(err, errNoBlock) }
	var deadlines []time.Time
	n.cluster.refill = func(ctx context.Context, _ *pod.Request, refused error) error {
		deadline, _ := ctx.Deadline()
		if deadlines = append(deadlines, deadline); len(deadlines) == 5 {
			return refused
		}
		return nil
	}
	began := time.Now()
	n.refusedAdd(t, addOf("c1", "/run/netns/a"))
	if len(deadlines) != 5 {
		t.Fatalf("%d waits, want 5", len(deadlines))
	}
	for i, d := range deadlines {
		if !d.Equal(deadlines[0]) || d.Before(began.Add(15*time.Second)) {
			t.Errorf("wait %d has the deadline %s, want the one of the first wait, %s", i, d, deadlines[0])
		}
	}
}

func TestEndOfWaitsEndsTheWaitForAddressesAndThoseToCome(t *testing.T) {
	w := newWaiter(t)
	reply := w.adds(t, addOf("c1", "/run/netns/a"))
	waits := soon(t, "the wait", w.begun)
	w.EndWaits()
	soon(t, "the end of the wait", waits.Done())
	wantError(t, soon(t, "the ADD", reply).GetError(), pod.CodeTryAgain, "the agent stops")
	wantError(t, soon(t, "a later ADD", w.adds(t, addOf("c2", "/run/netns/b"))).GetError(), pod.CodeTryAgain,
		"the agent stops")
	w.want(t)
}

// The inputs of an ADD may come from an API server that hangs.
func TestEndOfWaitsEndsThePreparationOfAnADD(t *testing.T) {
	w := newWaiter(t)
	begun := make(chan context.Context, 1)
	w.cluster.annotations = func(ctx context.Context, _ pod.ID) (map[string]string, string, error) {
		begun <- ctx
		<-ctx.Done()
		return nil, "", ctx.Err()
	}
	req := addOf("c1", "/run/netns/a")
	req.HasAnnotations = false
	reply := w.adds(t, req)
	soon(t, "the preparation", begun)
	w.EndWaits()
	wantError(t, soon(t, "the ADD", reply).GetError(), pod.CodeTryAgain, "the agent stops")
	w.want(t)
}
