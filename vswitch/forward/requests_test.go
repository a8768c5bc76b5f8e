package forward

import (
	"context"
	"testing"
	"time"
)

func TestRequestToAnEndedWorkerReturns(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.free()
	ctx, cancel := context.WithCancel(t.Context())
	w := e.workers[0]
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	if !w.requests.post(func(*worker) {}) {
		t.Error("running worker did not serve a request")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	answered := make(chan bool, 1)
	go func() { answered <- w.requests.post(func(*worker) {}) }()
	select {
	case read := <-answered:
		if read {
			t.Error("ended worker served a request")
		}
	case <-time.After(time.Minute):
		t.Fatal("request to an ended worker does not return")
	}
}
