package eventlooptest

import (
	"context"
	"testing"

	"github.com/weftnet/weft/eventloop"
)

// Run runs l until the test ends or stop is called.
func Run(t testing.TB, l *eventloop.Loop) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-ended; err != nil {
			t.Errorf("run event loop: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// Ready runs l and its start-up resync.
func Ready(t testing.TB, l *eventloop.Loop) (stop func()) {
	t.Helper()
	stop = Run(t, l)
	if _, err := l.Do(t.Context(), eventloop.Resynchronize{Kind: eventloop.Full, Reason: "start"}); err != nil {
		t.Fatalf("start-up resync: %v", err)
	}
	return stop
}
