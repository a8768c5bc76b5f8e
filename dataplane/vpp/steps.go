package vpp

import (
	"context"
	"errors"

	"github.com/weftnet/weft/kvscheduler"
)

// steps are requests that are sent together, of which each item of a batch may have none, one or several.
type steps struct {
	requests []*request
	items    []int // whose request it is, by its place in the batch
}

func (s *steps) add(item int, r *request) {
	s.requests, s.items = append(s.requests, r), append(s.items, item)
}

// take sends all and sets the items' errors. If a part of an item's steps was refused and a part was not, the outcome is
// unknown as a whole.
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

// strip takes the knowledge of the outcome off an error.
func strip(err error) error {
	known := new(kvscheduler.OpError)
	if errors.As(err, &known) {
		return known.Err
	}
	return err
}
