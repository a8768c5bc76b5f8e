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

// del gives an address back to a foreign IPAM plugin when nobody uses it any more, or nobody is there to say so. A
// refusal of the agent leaves it: the runtime comes again. What was asked for by the interface is given back by it, so
// before that goes, which it does whatever the plugin says.
func del(c *call) error {
	if f := c.foreign(); f != nil && asksByLink(f.kind) {
		return both(c.giveBack(), c.deleteAttachment())
	}
	if err := c.deleteAttachment(); err != nil {
		return err
	}
	return c.giveBack()
}

// deleteAttachment needs nothing but the key: no namespace, no prevResult, no arguments. It succeeds without an agent where no
// attachment can have the key: a runtime repeats a DEL that fails, and this one would fail for ever.
func (c *call) deleteAttachment() error {
	if err := c.possibleKey(); err != nil {
		c.log.Info("nothing to delete", "err", err)
		return nil
	}
	req := &weftv1.DeleteRequest{Caller: c.caller(), Attachment: c.attachment()}
	if env, err := parseArgs(c.CmdArgs.Args); err == nil {
		req.Pod = env.pod()
	}
	answer, err := c.delete(req, c.plugin.del.call)
	if !isAway(answer, err) {
		return c.deleted(req, answer, err)
	}
	c.log.Info("agent does not serve, DEL is queued", "err", err, "queue", c.conf.DeleteQueue)
	return c.enqueue(req)
}

func (c *call) delete(req *weftv1.DeleteRequest, limit time.Duration) (*weftv1.DeleteReply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return ask(ctx, c.conf.Socket, patience{}, func(ctx context.Context, agent weftv1.RemoteCNIClient) (*weftv1.DeleteReply, error) {
		return agent.Delete(ctx, req)
	})
}

func (c *call) deleted(req *weftv1.DeleteRequest, answer *weftv1.DeleteReply, err error) error {
	if err == nil && answer.GetError() == nil {
		return nil
	}
	return failed("delete "+c.name(req.GetPod()), err, answer.GetError())
}

// isAway is true when the agent has not served the DEL and will not soon.
func isAway(answer *weftv1.DeleteReply, err error) bool {
	if err == nil {
		return isStarting(answer) || answer.GetError().GetCode() == uint32(errTimeout)
	}
	_, unreachable := errors.AsType[*unreachableError](err)
	code := status.Code(err)
	return unreachable || code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

// enqueue leaves the DEL to the agent's next start, unless the agent serves it now
// that no other can be starting.
func (c *call) enqueue(req *weftv1.DeleteRequest) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.plugin.del.lock)
	defer cancel()
	queue, err := deletequeue.Open(c.conf.DeleteQueue)
	if err != nil {
		return types.NewError(types.ErrIOFailure, "queue the DEL: "+err.Error(), "")
	}
	var refusal error
	key := deletequeue.Key{Network: c.network(), ContainerID: c.ContainerID, IfName: c.IfName}
	err = queue.AddUnless(ctx, deletequeue.NewEntry(key, time.Now()), func() bool {
		answer, err := c.delete(req, c.plugin.del.last)
		if isAway(answer, err) {
			return false
		}
		refusal = c.deleted(req, answer, err)
		return true
	})
	switch {
	case err == nil:
		return refusal
	case errors.Is(err, deletequeue.ErrFull), errors.Is(err, context.DeadlineExceeded):
		return types.NewError(types.ErrTryAgainLater, "queue the DEL: "+err.Error(), "is weft-agent running?")
	}
	return types.NewError(types.ErrIOFailure, "queue the DEL: "+err.Error(), "")
}
