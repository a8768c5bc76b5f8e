package vpp

import (
	"context"
	"fmt"

	"github.com/weftnet/weft/kvscheduler"
)

// each makes one request of each item, sends them all and sets Err where that failed.
func each[V, M any](ctx context.Context, c *Client, batch []kvscheduler.Item[V, M], make func(*kvscheduler.Item[V, M]) *request) {
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

// handle is what the item's dependency of that number left for us.
func handle[H, V, M any](it *kvscheduler.Item[V, M], number int) H {
	if number >= len(it.Handles) {
		panic(fmt.Sprintf("%s: has no dependency %d", it.Name, number)) //nolint:forbidigo // impossible: the scheduler gives one for each
	}
	return it.Handles[number].(H)
}

// yieldAll makes an iterator of a finished dump.
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

// exchangeAll is exchange for requests of which all must succeed.
func (c *Client) exchangeAll(ctx context.Context, requests []*request) error {
	c.exchange(ctx, requests...)
	return firstFault(requests)
}

func firstFault(requests []*request) error {
	for _, r := range requests {
		if err := r.fault(); err != nil {
			return err
		}
	}
	return nil
}
