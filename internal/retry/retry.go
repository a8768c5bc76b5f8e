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

// Keep calls run again whenever it ends, until ctx ends, and returns the error of ctx. It calls ended with the error of
// each run and the pause after it. After a run that was longer than the longest pause, the first pause is short again.
func Keep(
	ctx context.Context, pauses *backoff.ExponentialBackOff, run func(context.Context) error,
	ended func(err error, after time.Duration),
) error {
	for {
		began := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Since(began) > pauses.MaxInterval {
			pauses.Reset()
		}
		after := pauses.NextBackOff()
		ended(err, after)
		if err := Pause(ctx, after); err != nil {
			return err
		}
	}
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
