package cni

import (
	"context"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/proto/deletequeue"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// delLimits bound the parts of a DEL: kubelet gives a sandbox two minutes to stop.
type delLimits struct {
	call time.Duration
	lock time.Duration // an agent that starts may be draining
	last time.Duration // for the last attempt under the lock
}

var defaultDelLimits = delLimits{call: 30 * time.Second, lock: 10 * time.Second, last: 5 * time.Second}

func del(c *call) error { return c.deletion().run() }

// deletion deletes one attachment: as a DEL, or as the undo of an ADD.
type deletion struct {
	socket string
	queue  string // directory of the delete queue
	limits delLimits
	key    attachmentKey
	req    *weftv1.DeleteRequest
	ipam   *ipamPlugin
	log    *log
}

// run deletes the attachment, and then has the third-party IPAM plugin release its addresses, also if the DEL was only
// queued. If the agent refuses the DEL, the addresses stay and the runtime retries. A plugin that needs the interface
// (dhcp) is called first; if it fails, the attachment is deleted nevertheless.
func (d *deletion) run() error {
	if d.ipam != nil && needsInterface(d.ipam.name) {
		return joinErrors(d.ipam.release(), d.deleteAttachment())
	}
	if err := d.deleteAttachment(); err != nil {
		return err
	}
	return d.ipam.release()
}

// deleteAttachment needs only the key: no namespace, no prevResult, no arguments. If the key is invalid, no attachment
// has it and the DEL succeeds without the agent: the runtime would retry a failing DEL forever.
func (d *deletion) deleteAttachment() error {
	if err := d.key.validate(); err != nil {
		d.log.Info("nothing to delete", "err", err)
		return nil
	}
	answer, err := d.ask(d.limits.call)
	if !isUnavailable(answer, err) {
		return d.callError(answer, err)
	}
	d.log.Info("agent does not serve, DEL is queued", "err", err, "queue", d.queue)
	return d.enqueue()
}

func (d *deletion) ask(limit time.Duration) (*weftv1.DeleteReply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return ask(ctx, endpoint{socket: d.socket}, weftv1.RemoteCNIClient.Delete, d.req)
}

func (d *deletion) callError(answer *weftv1.DeleteReply, err error) error {
	return callError("delete "+d.key.describe(d.req.GetPod()), err, answer.GetError())
}

// isUnavailable reports whether the agent did not process the DEL, and will not do so soon.
func isUnavailable(answer *weftv1.DeleteReply, err error) bool {
	if err == nil {
		return isStarting(answer) || answer.GetError().GetCode() == uint32(errTimeout)
	}
	_, unreachable := errors.AsType[*unreachableError](err)
	code := status.Code(err)
	return unreachable || code == codes.Unavailable || code == codes.DeadlineExceeded ||
		errors.Is(err, context.DeadlineExceeded)
}

// enqueue queues the DEL for the next start of the agent. Under the lock of the queue, which excludes a starting agent,
// it first tries the agent once more.
func (d *deletion) enqueue() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.limits.lock)
	defer cancel()
	queue, err := deletequeue.Open(d.queue)
	if err != nil {
		return errorf(types.ErrIOFailure, "queue the DEL: %v", err)
	}
	var refusal error
	err = queue.AddUnless(ctx, deletequeue.NewEntry(d.key.queued(), time.Now()), func() bool {
		answer, err := d.ask(d.limits.last)
		if isUnavailable(answer, err) {
			return false
		}
		refusal = d.callError(answer, err)
		return true
	})
	switch {
	case err == nil:
		return refusal
	case errors.Is(err, deletequeue.ErrFull), errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, "queue the DEL: "+err.Error(), "is weft-agent running?")
	}
	return errorf(types.ErrIOFailure, "queue the DEL: %v", err)
}
