// Package retry waits between attempts of what fails for a while.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Until calls try, with pauses that grow from first to most, until it succeeds or ctx ends. It returns the result of
// the last call. An error of backoff.Permanent ends the attempts.
func Until[T any](ctx context.Context, first, most time.Duration, try func() (T, error)) (T, error) {
	return backoff.Retry(ctx, try, backoff.WithBackOff(Pauses(first, most)), backoff.WithMaxElapsedTime(0))
}

// Pauses returns pauses that grow from first to most.
func Pauses(first, most time.Duration) *backoff.ExponentialBackOff {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = first
	pauses.MaxInterval = most
	return pauses
}

// Pause waits, and returns the error of ctx if that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
