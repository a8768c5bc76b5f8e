package ui

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// openStream opens a stream of events.
func openStream(ctx context.Context, t *testing.T, client *http.Client) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reply.Body.Close() })
	return reply
}

// A browser that opens streams without an end occupies the agent no further. Other requests are answered.
func TestStreamsAreBounded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	a := agent{following: make(chan struct{}, 2*maxStreams)}
	client, ended := serveAt(ctx, t, a)
	leave := make([]context.CancelFunc, maxStreams)
	for n := range maxStreams {
		var request context.Context
		request, leave[n] = context.WithCancel(t.Context())
		if reply := openStream(request, t, client); reply.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", n, reply.Status)
		}
	}
	reply := openStream(t.Context(), t, client)
	if reply.StatusCode == http.StatusOK {
		t.Fatal("there is one stream more")
	}
	text, _ := io.ReadAll(reply.Body)
	if reply.StatusCode != http.StatusServiceUnavailable || reply.Header.Get("Retry-After") != "30" ||
		!strings.Contains(string(text), "32 streams of events are open") {
		t.Errorf("one stream more: %s, Retry-After %q, %s", reply.Status, reply.Header.Get("Retry-After"), text)
	}
	if events, err := client.Get("http://localhost/api/events"); err != nil || events.StatusCode != http.StatusOK {
		t.Errorf("another request: %v", err)
	} else {
		_ = events.Body.Close()
	}
	leave[0]()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for openStream(t.Context(), t, client).StatusCode != http.StatusOK {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("no stream is free after a client left")
		}
	}
	for _, cancel := range leave {
		cancel()
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
