package forward

import (
	"context"
	"testing"
	"time"
)

func TestAWorkerThatHasEndedHoldsNobodyUp(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.free()
	ctx, cancel := context.WithCancel(t.Context())
	w := e.workers[0]
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	if !w.post(func(*worker) {}) {
		t.Error("a worker that runs read no mail")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	answered := make(chan bool, 1)
	go func() { answered <- w.post(func(*worker) {}) }()
	select {
	case read := <-answered:
		if read {
			t.Error("a worker that has ended read its mail")
		}
	case <-time.After(time.Minute):
		t.Fatal("who writes to a worker that has ended waits for ever")
	}
}
