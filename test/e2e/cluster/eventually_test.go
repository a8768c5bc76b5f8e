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
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the sun shines") || !strings.Contains(err.Error(), "it rains") {
			t.Errorf("got %v", err)
		}
	})
}

func TestEventuallyChecksUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, checks := time.Now(), 0
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
		dead, checks := errors.New("it is dead"), 0
		err := Eventually(t.Context(), "it lives", func(context.Context) error {
			checks++
			return hopeless(dead)
		})
		if !errors.Is(err, dead) || checks != 1 {
			t.Errorf("%v after %d checks", err, checks)
		}
	})
}
