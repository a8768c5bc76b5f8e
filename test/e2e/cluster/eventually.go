package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	// pause is the interval of checks, and slowPause that of checks of what takes long: each is work for the API
	// server.
	pause     = 50 * time.Millisecond
	slowPause = 5 * pause
	soon      = 3 * time.Second
	// timeout is the timeout of one step of a cluster, unless the caller's context ends before.
	timeout = 2 * time.Minute
	// countPause is the interval of CountDown, whose checks list many objects.
	countPause = 500 * time.Millisecond
)

// hopelessError is an error that waiting cannot resolve.
type hopelessError struct{ error }

// Unwrap returns the cause.
func (e hopelessError) Unwrap() error { return e.error }

// hopeless makes Eventually return err at once.
func hopeless(err error) error { return hopelessError{err} }

// Eventually calls check until it succeeds; its error has the condition that did not become true, and the last error of
// check.
func Eventually(ctx context.Context, what string, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	slower := time.AfterFunc(soon, func() { tick.Reset(slowPause) })
	defer slower.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // not an error because of the end of ctx
		}
		if errors.As(err, new(hopelessError)) {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, ctx.Err(), last)
		case <-tick.C:
		}
	}
}

// CountDown calls left until it returns zero. Its timeout begins again whenever less than ever is left: the time of a
// hundred pods depends on the machine, but a cluster that works finishes one of them at a time.
func CountDown(ctx context.Context, what string, left func(ctx context.Context) (int, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(timeout, func() { cancel(fmt.Errorf("no progress in %s", timeout)) })
	defer stall.Stop()
	tick := time.NewTicker(countPause)
	defer tick.Stop()
	least := math.MaxInt
	var last error
	for {
		n, err := left(ctx)
		switch {
		case err == nil && n == 0:
			return nil
		case err == nil:
			last = fmt.Errorf("%d are left", n)
			if n < least {
				least = n
				stall.Reset(timeout)
			}
		case ctx.Err() == nil || last == nil:
			last = err // not an error because of the end of ctx
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}
