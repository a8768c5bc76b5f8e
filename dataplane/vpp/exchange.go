package vpp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.fd.io/govpp/api"

	"github.com/weftnet/weft/kvscheduler"
)

// window is how many requests are on their way at once: VPP gains nothing from more.
const window = 64

var (
	errNoAnswer = errors.New("no answer from the dataplane")
	errUnsent   = errors.New("not sent")
	errHarmful  = errors.New("not sent because it ends this dataplane")
)

// exchange sends the requests in order, pipelined, and returns when each is answered or has failed; limit bounds the
// wait for any one of them. What an error says of a request's outcome is in its type (see fault).
//
// When ctx ends, no further request is sent and reads are abandoned. Changes that were sent are awaited for the rest of the
// limit: their outcome decides what a rollback must remove, and VPP may create an interface for longer than a caller waits.
func (s *session) exchange(ctx context.Context, limit time.Duration, requests []*request) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	sent, ended := 0, false
	for i, r := range requests {
		if !ended && sent-i <= window/2 {
			sent = s.send(requests, i, sent)
		}
		if i == sent {
			s.giveUp(requests[i:], 0, ctx.Err())
			return
		}
		if !ended {
			timer.Reset(limit)
			switch s.await(ctx.Done(), r, timer, limit) {
			case answered:
				continue
			case stopped:
				ended = true // the timer goes on
			case silent:
				s.giveUp(requests[i:], sent-i, fmt.Errorf("%w within %s", errNoAnswer, limit))
				return
			}
		}
		if !r.changes() {
			s.abandon([]*request{r}, ctx.Err())
		}
		if s.await(nil, r, timer, limit) == silent {
			s.giveUp(requests[i:], sent-i, fmt.Errorf("%w within %s of %w", errNoAnswer, limit, ctx.Err()))
			return
		}
	}
}

// awaited is how the wait for an answer ended.
type awaited uint8

const (
	answered awaited = iota
	stopped
	silent
)

// await waits for a request's answer until the timer fires, and for the limit again as long as the dataplane answers what it was
// asked before: it takes one after the other, and a hundred interfaces may take longer than the limit.
func (s *session) await(stop <-chan struct{}, r *request, timer *time.Timer, limit time.Duration) awaited {
	for {
		select {
		case <-r.done:
			return answered
		case <-stop:
			return stopped
		case <-timer.C:
		}
		if !s.isAtEarlier(r, limit) {
			return silent
		}
		timer.Reset(limit)
	}
}

// isAtEarlier reports whether the dataplane has said something within the limit and has older requests than r to answer.
func (s *session) isAtEarlier(r *request, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.heard) >= limit {
		return false
	}
	for context := range s.waiting {
		if int32(context-r.context) < 0 {
			return true
		}
	}
	return false
}

// send fills the window, of which requests[oldest] is the first, and returns the index of the first request not sent.
func (s *session) send(requests []*request, oldest, next int) int {
	var frames []byte
	for next < len(requests) && next-oldest < window {
		var err error
		if frames, err = s.enlist(requests[next], frames); err != nil {
			requests[next].finish(err)
		}
		next++
	}
	if len(frames) > 0 {
		_ = s.write(frames) // ends the session, and so all requests
	}
	return next
}

// giveUp ends requests without an answer: the first n were sent, the others never will be.
func (s *session) giveUp(requests []*request, n int, err error) {
	s.abandon(requests[:n], err)
	for _, r := range requests[n:] {
		r.done = make(chan struct{})
		r.finish(fmt.Errorf("%w: %w", errUnsent, err))
	}
}

// fault is what a request's end means for the object that it was for: nil, or an error that says whether the dataplane
// may have done it.
func (r *request) fault() error {
	switch retval := r.retval(); {
	case r.err != nil && r.sent:
		return fmt.Errorf("%s: %w", r.what, r.err)
	case r.err != nil:
		missing := new(MissingMessage)
		return &kvscheduler.OpError{
			Err: fmt.Errorf("%s: %w", r.what, r.err), Outcome: kvscheduler.NotApplied,
			Permanent: errors.As(r.err, &missing) || errors.Is(r.err, errHarmful),
		}
	case retval != 0 && !slices.Contains(r.fine, retval):
		return &kvscheduler.OpError{
			Err: fmt.Errorf("%s: %w", r.what, retval), Outcome: kvscheduler.NotApplied, Permanent: hopeless[retval],
		}
	}
	return nil
}

// refused tells whether the dataplane answered with one of the retvals.
func (r *request) refused(retvals ...api.VPPApiError) bool {
	return r.err == nil && slices.Contains(retvals, r.retval())
}

// hopeless are the refusals that the same value meets again whatever else changes.
var hopeless = map[api.VPPApiError]bool{
	api.INVALID_VALUE:                 true,
	api.INVALID_VALUE_2:               true,
	api.UNIMPLEMENTED:                 true,
	api.ADDRESS_LENGTH_MISMATCH:       true,
	api.INVALID_ARGUMENT:              true,
	api.INVALID_ADDRESS_FAMILY:        true,
	api.UNSUPPORTED:                   true,
	api.ILLEGAL_NAME:                  true,
	api.FIB_PATH_UNSUPPORTED_NH_PROTO: true,
	api.INVALID_PREFIX_LENGTH:         true,
}

// permanent is an error of ours, found before anything was sent.
func permanent(err error) error {
	return &kvscheduler.OpError{Err: err, Outcome: kvscheduler.NotApplied, Permanent: true}
}
