package podmanager

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weftnet/weft/eventloop"
	"github.com/weftnet/weft/internal/line"
	"github.com/weftnet/weft/pod"
	weftv1 "github.com/weftnet/weft/proto/weft/v1"
)

// codeInternal is what CNI's own library gives errors without a code.
const codeInternal uint = 999

// starting, as the details of an error, tells the plugin that the agent is there
// but does not serve yet: it waits, or queues a DEL.
const starting = "starting"

// restoring, as the details of a STATUS, tells the plugin that the agent has not ended its first resync: what it waits for
// takes seconds, unlike what an agent that has been started can lack.
const restoring = "restoring"

// replyError turns an error into the one that the runtime gets: one line and a code.
func replyError(err error, rec *eventloop.Record) *weftv1.Error {
	reply := &weftv1.Error{Code: uint32(codeOf(err, rec)), Msg: line.Of(err.Error(), line.Error)}
	own, ok := errors.AsType[*pod.Error](err)
	if ok {
		reply.Msg = line.Of(own.Error(), line.Error) // the text for operators
	}
	if isStarting(err) {
		reply.Details = starting
	} else if rec != nil {
		reply.Details = details(rec)
	}
	return reply
}

// codeOf finds the most telling of what an error wraps.
func codeOf(err error, rec *eventloop.Record) uint {
	own, isOwn := errors.AsType[*pod.Error](err)
	switch {
	case isStarting(err), errors.Is(err, eventloop.ErrCancelled), errors.Is(err, eventloop.ErrQueueFull):
		return pod.CodeTryAgain
	case isOwn:
		return own.Code
	case errors.Is(err, eventloop.ErrNotSaved):
		return pod.CodeIO
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return pod.CodeTimeout
	case refused(rec):
		return pod.CodeRefused
	}
	return codeInternal
}

func isStarting(err error) bool {
	_, ok := errors.AsType[*notReadyError](err)
	return ok || errors.Is(err, eventloop.ErrNotReady) || errors.Is(err, eventloop.ErrStopped)
}

// refused is true when the commit failed: the dataplane or the kernel said no.
func refused(rec *eventloop.Record) bool {
	if rec == nil {
		return false
	}
	for _, s := range rec.Steps {
		if s.Name == "commit" && s.Err != "" {
			return true
		}
	}
	return false
}

// details say where to look, and what is left behind if anything is.
func details(rec *eventloop.Record) string {
	d := fmt.Sprintf("event %d", rec.Seq)
	if len(rec.Stuck) > 0 {
		d += ", left behind: " + strings.Join(rec.Stuck, ", ")
	}
	return line.Of(d, line.Error)
}

// notReadyError says that the agent runs but does not serve yet.
type notReadyError struct{ reason error }

// Error gives the reason.
func (e *notReadyError) Error() string { return "agent is starting: " + e.reason.Error() }

// Unwrap gives what the agent said.
func (e *notReadyError) Unwrap() error { return e.reason }
