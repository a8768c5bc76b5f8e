package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// pause lies between two looks.
	pause = 50 * time.Millisecond
	// patience is how long a cluster may take for one step, unless the caller's context ends before.
	patience = 2 * time.Minute
)

// hopelessError will not become better by waiting.
type hopelessError struct{ error }

// Unwrap gives what it is about.
func (e hopelessError) Unwrap() error { return e.error }

// hopeless ends Eventually's waiting with err.
func hopeless(err error) error { return hopelessError{err} }

// Eventually looks until check succeeds; its error says what did not become true, and why when it last looked.
func Eventually(ctx context.Context, what string, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
			last = err // not that the time was over during the look
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
