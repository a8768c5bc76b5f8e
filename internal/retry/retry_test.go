package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weftnet/weft/internal/retry"
)

var errRefused = errors.New("refused")

func TestUntilReturnsTheFirstSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		got, err := retry.Until(t.Context(), time.Second, time.Minute, func() (int, error) {
			calls++
			if calls < 100 {
				return 0, errRefused
			}
			return calls, nil
		})
		if got != 100 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	})
}

func TestUntilEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := retry.Until(ctx, time.Second, time.Minute, func() (int, error) { return 0, errRefused })
		if err == nil || time.Since(began) > time.Hour {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

func TestPausesGrowWithinTheirBounds(t *testing.T) {
	pauses := retry.Pauses(time.Second, time.Minute)
	if first := pauses.NextBackOff(); first < 500*time.Millisecond || first > 1500*time.Millisecond {
		t.Errorf("the first pause is %s", first)
	}
	var last time.Duration
	for range 100 {
		last = pauses.NextBackOff()
	}
	if last < 30*time.Second || last > 90*time.Second {
		t.Errorf("the last pause is %s", last)
	}
}

// A run that lasted is a success: the next failure is not the continuation of earlier ones.
func TestKeepPausesShortlyAfterARunThatLasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lasts := make([]time.Duration, 12)
		lasts[10] = time.Hour
		runs := 0
		var pauses []time.Duration
		err := retry.Keep(ctx, retry.Pauses(time.Second, time.Minute),
			func(ctx context.Context) error {
				if runs == len(lasts) {
					cancel()
					return ctx.Err()
				}
				last := lasts[runs]
				runs++
				_ = retry.Pause(ctx, last)
				return errRefused
			},
			func(err error, after time.Duration) {
				if !errors.Is(err, errRefused) {
					t.Error(err)
				}
				pauses = append(pauses, after)
			})
		if !errors.Is(err, context.Canceled) || len(pauses) != len(lasts) {
			t.Fatalf("%v after pauses %v", err, pauses)
		}
		if pauses[9] < 20*time.Second {
			t.Errorf("the pauses do not grow: %v", pauses)
		}
		if first := pauses[10]; first > 1500*time.Millisecond {
			t.Errorf("the pause after the run of an hour is %v: %v", first, pauses)
		}
	})
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := retry.Pause(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the end of the context: %v", err)
		}
		began := time.Now()
		if err := retry.Pause(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
