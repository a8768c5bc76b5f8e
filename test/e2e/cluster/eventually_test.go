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
		looks := 0
		err := Eventually(t.Context(), "the sun shines", func(ctx context.Context) error {
			if looks++; looks < 3 {
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
		started, looks := time.Now(), 0
		err := Eventually(t.Context(), "it is the third look", func(context.Context) error {
			if looks++; looks < 3 {
				return errors.New("too early")
			}
			return nil
		})
		if err != nil || looks != 3 || time.Since(started) != 2*pause {
			t.Errorf("%v after %d checks and %s", err, looks, time.Since(started))
		}
	})
}

func TestEventuallyReturnsHopelessErrorsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, looks := errors.New("it is dead"), 0
		err := Eventually(t.Context(), "it lives", func(context.Context) error {
			looks++
			return hopeless(dead)
		})
		if !errors.Is(err, dead) || looks != 1 {
			t.Errorf("%v after %d checks", err, looks)
		}
	})
}
