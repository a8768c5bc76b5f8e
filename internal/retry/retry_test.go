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
