package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weftnet/weft/agent/health"
)

// journalOf is a log that tests read while it is written.
type journalOf struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journalOf) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journalOf) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// runEndpoint runs one until the test ends or stop is called.
func runEndpoint(t *testing.T, address string) (log *journalOf, stop func()) {
	t.Helper()
	log = &journalOf{}
	a := &Agent{health: health.New("", slog.New(slog.DiscardHandler))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", a.answerHealth)
	e := &endpoint{address: address, handler: mux, log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	e.openFirst(ctx)
	done := make(chan error, 1)
	go func() { done <- e.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return log, stop
}

func ask(t *testing.T, method, address, path string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text), err
}

func TestATakenPortIsTriedAgain(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	log, stop := runEndpoint(t, address)
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "address already in use") || !strings.Contains(text, "set http.listen") {
		t.Errorf("log %s", text)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the endpoint", func() error {
		code, text, err := ask(t, http.MethodGet, address, "/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(text, "started: starting") {
			return fmt.Errorf("%d %q %w", code, text, err)
		}
		return nil
	})
	stop()
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	_ = again.Close()
}

// serveOnAnyPort runs an endpoint until the test ends.
func serveOnAnyPort(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	e := &endpoint{address: "127.0.0.1:0", handler: handler, log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	e.openFirst(ctx)
	address = e.listener.Addr().String()
	done := make(chan error, 1)
	go func() { done <- e.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return address
}

func TestNothingElseIsServed(t *testing.T) {
	a := &Agent{health: health.New("", slog.New(slog.DiscardHandler))}
	address := serveOnAnyPort(t, a.routes())
	for _, tt := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, "/", http.StatusNotFound},
		{http.MethodGet, "/debug/pprof/", http.StatusNotFound},
		{http.MethodGet, "/readyz/more", http.StatusNotFound},
		{http.MethodPost, "/healthz", http.StatusMethodNotAllowed},
		{http.MethodDelete, "/metrics", http.StatusMethodNotAllowed},
	} {
		if code, _, err := ask(t, tt.method, address, tt.path); code != tt.code || err != nil {
			t.Errorf("%s %s: %d, %v, want %d", tt.method, tt.path, code, err, tt.code)
		}
	}
	a.health.Set(health.Started, true, "")
	a.health.Set(health.Dataplane, true, "vpp")
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text, err := ask(t, http.MethodGet, address, path); code != http.StatusOK || text != "ready\n" || err != nil {
			t.Errorf("%s: %d %q, %v", path, code, text, err)
		}
	}
}

func TestAnEmptyAddressSwitchesTheEndpointOff(t *testing.T) {
	log, stop := runEndpoint(t, "")
	stop()
	if text := log.String(); text != "" {
		t.Errorf("log %s", text)
	}
}

func TestAClientThatSaysNothingIsCutOff(t *testing.T) {
	address := serveOnAnyPort(t, http.NotFoundHandler())
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, bufio.NewReader(conn))
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Error("it is still waited for")
	}
}
