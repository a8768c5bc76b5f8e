package planning

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftnet/weft/kvscheduler"
	operatorv1 "github.com/weftnet/weft/proto/weft/operator/v1"
)

// readTime bounds the reads of one Diff. An audit of a node with 1,000 pods takes about a second.
const readTime = 15 * time.Second

// reader reads the machine, and compares it with the objects.
type reader struct {
	*objects

	reading chan struct{} // of capacity 1: the machine is read for one caller at a time
}

// Diff reads the selected objects back and lists those with a difference between desired, applied and machine.
func (r *reader) Diff(ctx context.Context, req *operatorv1.DiffRequest) (*operatorv1.DiffReply, error) {
	var refs []kvscheduler.Ref
	if req.Selector != "" {
		var err error
		if refs, err = r.selected(req.Selector); err != nil {
			return nil, err
		}
	}
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	found, err := r.scheduler.Compare(ctx, refs...)
	if found == nil && err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	reply := &operatorv1.DiffReply{Compared: uint32(len(found)), Unread: linesOf(err)}
	if note := r.lastKnown("its objects were not read"); note != "" {
		reply.Unread = append([]string{note}, withoutDown(err)...)
	}
	view := r.scheduler.View()
	for _, c := range found {
		if c.Moving {
			reply.Moving = append(reply.Moving, c.Ref.String())
			continue
		}
		d := &operatorv1.ObjectDiff{
			Ref: c.Ref.String(), Phase: r.phaseOf(view, c.Ref), Reason: c.Reason, Unread: c.Unread,
		}
		if d.Reason == "" && c.Want == nil { // observed, or a third party's
			continue
		}
		if d.Fields = fieldsOf([sides]any{desired: c.Want, applied: c.Applied, machine: c.Machine},
			c.Unread); d.Reason != "" {
			reply.Objects = append(reply.Objects, d)
		}
	}
	return reply, nil
}

// linesOf returns the lines of a joined error.
func linesOf(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

// withoutDown returns the lines of the errors with another cause than a dataplane that is not connected.
func withoutDown(err error) (lines []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if errors.Is(err, kvscheduler.ErrDown) {
			return nil
		}
		return linesOf(err)
	}
	for _, e := range joined.Unwrap() {
		lines = append(lines, withoutDown(e)...)
	}
	return lines
}
