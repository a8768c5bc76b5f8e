package vpp

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/weftnet/weft/kvscheduler"
)

// simple is the backend of a kind with one request for each operation on an object. An update creates the object again,
// which replaces it in the dataplane.
type simple[V, M any] struct {
	c              *Client
	create, delete func(*kvscheduler.Item[V, M]) *request
	// no names: all objects
	list func(ctx context.Context, names []string) ([]kvscheduler.Actual[V, M], error)
}

func (b simple[V, M]) Create(ctx context.Context, batch []kvscheduler.Item[V, M]) {
	each(ctx, b.c, batch, b.create)
}

func (b simple[V, M]) Update(ctx context.Context, batch []kvscheduler.Item[V, M]) {
	b.Create(ctx, batch)
}

func (b simple[V, M]) Delete(ctx context.Context, batch []kvscheduler.Item[V, M]) {
	each(ctx, b.c, batch, b.delete)
}

func (b simple[V, M]) Dump(ctx context.Context, _ kvscheduler.View) iter.Seq2[kvscheduler.Actual[V, M], error] {
	return yieldAll(b.list(ctx, nil))
}

// readable is a simple backend that can read the objects of some interfaces, VRFs or bridge domains.
type readable[V, M any] struct{ simple[V, M] }

func (b readable[V, M]) Read(
	ctx context.Context, _ kvscheduler.View, names []string,
) iter.Seq2[kvscheduler.Actual[V, M], error] {
	return yieldAll(b.list(ctx, names))
}

// recreated is the part of a backend with objects that cannot be changed in place: every difference recreates them.
type recreated[V, M any] struct{}

// Update is never called.
func (recreated[V, M]) Update(_ context.Context, batch []kvscheduler.Item[V, M]) {
	for i := range batch {
		batch[i].Err = permanent(fmt.Errorf("%s cannot be changed in place", batch[i].Name))
	}
}

// always is Descriptor.Recreate of these kinds.
func always[V any](have, want V) bool { return true }

// equal is Descriptor.Equal of kinds that the dataplane reports completely.
func equal[V comparable](want, have V) bool { return want == have }

// both reads two parts of the dataplane's state.
func both[A, B any](
	ctx context.Context, first func(context.Context) (A, error), second func(context.Context) (B, error),
) (a A, b B, err error) {
	if a, err = first(ctx); err == nil {
		b, err = second(ctx)
	}
	return a, b, err
}

// verb names an operation of an add_del message in errors.
func verb(add bool) string {
	if add {
		return "add"
	}
	return "delete"
}

// unread reports whether a backend could not read the dataplane before a change. It refuses the whole batch then.
func unread[V, M any](batch []kvscheduler.Item[V, M], err error) bool {
	for i := range batch {
		if err != nil {
			batch[i].Err = kvscheduler.Refused(err)
		}
	}
	return err != nil
}

// each sends one request for each item and sets the errors of the items.
func each[V, M any](
	ctx context.Context, c *Client, batch []kvscheduler.Item[V, M], make func(*kvscheduler.Item[V, M]) *request,
) {
	requests := newRequests(batch, make)
	c.exchange(ctx, requests...)
	for i, r := range requests {
		batch[i].Err = r.fault()
	}
}

func newRequests[V, M any](batch []kvscheduler.Item[V, M], make func(*kvscheduler.Item[V, M]) *request) []*request {
	var requests []*request
	for i := range batch {
		requests = append(requests, make(&batch[i]))
	}
	return requests
}

// several sends any number of requests for each item and sets the errors of the items, see take.
func several[V, M any](
	ctx context.Context, c *Client, batch []kvscheduler.Item[V, M], make func(*kvscheduler.Item[V, M]) []*request,
) {
	var s steps
	for i := range batch {
		for _, r := range make(&batch[i]) {
			s.add(i, r)
		}
	}
	take(ctx, c, &s, batch)
}

// handle returns the Meta of the item's dependency with that number.
func handle[H, V, M any](it *kvscheduler.Item[V, M], number int) H {
	if number >= len(it.Handles) {
		panic(fmt.Sprintf("%s: has no dependency %d", it.Name, number)) //nolint:forbidigo // impossible: the scheduler gives one for each
	}
	return it.Handles[number].(H)
}

func yieldAll[V, M any](found []kvscheduler.Actual[V, M], err error) func(func(kvscheduler.Actual[V, M], error) bool) {
	return func(yield func(kvscheduler.Actual[V, M], error) bool) {
		if err != nil {
			yield(kvscheduler.Actual[V, M]{}, err)
			return
		}
		for _, a := range found {
			if !yield(a, nil) {
				return
			}
		}
	}
}

// steps are requests that are sent together. An item of a batch has any number of them.
type steps struct {
	requests []*request
	items    []int // the index of each request's item
}

func (s *steps) add(item int, r *request) {
	s.requests = append(s.requests, r)
	s.items = append(s.items, item)
}

// take sends all steps and sets the errors of the items. If only some steps of an item were refused, its outcome is
// unknown.
func take[V, M any](ctx context.Context, c *Client, s *steps, batch []kvscheduler.Item[V, M]) {
	c.exchange(ctx, s.requests...)
	applied := map[int]bool{}
	for i, r := range s.requests {
		it := &batch[s.items[i]]
		err := r.fault()
		switch {
		case err == nil:
			applied[s.items[i]] = true
		case it.Err == nil:
			it.Err = err
		}
	}
	for n := range applied {
		if batch[n].Err != nil {
			batch[n].Err = strip(batch[n].Err)
		}
	}
}

// undo sends the request that undoes a part of a failed item, also after the end of ctx. It returns false if that
// fails, too.
func undo[V, M any](ctx context.Context, c *Client, it *kvscheduler.Item[V, M], r *request) bool {
	c.exchange(context.WithoutCancel(ctx), r)
	err := r.fault()
	if err != nil {
		it.Err = fmt.Errorf("%w, and removing it again: %w", strip(it.Err), strip(err))
	}
	return err == nil
}

// strip removes the outcome from an error.
func strip(err error) error {
	known := new(kvscheduler.OpError)
	if errors.As(err, &known) {
		return known.Err
	}
	return err
}
