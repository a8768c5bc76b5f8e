package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// pause is the interval of checks.
	pause = 50 * time.Millisecond
	// timeout is the timeout of one step of a cluster, unless the caller's context ends before.
	timeout = 2 * time.Minute
)

// hopelessError is an error that waiting cannot resolve.
type hopelessError struct{ error }

// Unwrap returns the cause.
func (e hopelessError) Unwrap() error { return e.error }

// hopeless makes Eventually return err at once.
func hopeless(err error) error { return hopelessError{err} }

// Eventually calls check until it succeeds; its error has the condition that did not become true, and the last error of check.
func Eventually(ctx context.Context, what string, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
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
