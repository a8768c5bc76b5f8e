package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventuallyReturnsTheLastError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		err := Eventually(t.Context(), "the sun shines", func(ctx context.Context) error {
			if checks++; checks < 3 {
				return errors.New("it rains")
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the sun shines") ||
			!strings.Contains(err.Error(), "it rains") {
			t.Errorf("got %v", err)
		}
	})
}

func TestEventuallyChecksUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		checks := 0
		err := Eventually(t.Context(), "it is the third look", func(context.Context) error {
			if checks++; checks < 3 {
				return errors.New("too early")
			}
			return nil
		})
		if err != nil || checks != 3 || time.Since(started) != 2*pause {
			t.Errorf("%v after %d checks and %s", err, checks, time.Since(started))
		}
	})
}

func TestEventuallyReturnsHopelessErrorsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := errors.New("it is dead")
		checks := 0
		err := Eventually(t.Context(), "it lives", func(context.Context) error {
			checks++
			return hopeless(dead)
		})
		if !errors.Is(err, dead) || checks != 1 {
			t.Errorf("%v after %d checks", err, checks)
		}
	})
}

func TestCountDownWaitsWhileLessIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 10
		err := CountDown(t.Context(), "all have gone", func(context.Context) (int, error) {
			time.Sleep(timeout - time.Second) // ten of them are more than the timeout
			left--
			return left, nil
		})
		if err != nil || left != 0 {
			t.Errorf("%v with %d left", err, left)
		}
	})
}

func TestCountDownEndsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		left := 5
		err := CountDown(t.Context(), "all have gone", func(context.Context) (int, error) {
			left = 7 - left // more is no progress
			return left, nil
		})
		if err == nil || !strings.Contains(err.Error(), "no progress") || time.Since(started) > timeout+2*countPause {
			t.Errorf("%v after %s", err, time.Since(started))
		}
	})
}
