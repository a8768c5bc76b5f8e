package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/weftnet/weft/agent/health"
)

// logBuffer is a log that a test reads while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// runEndpoint runs an endpoint until the test ends or stop is called.
func runEndpoint(t *testing.T, address string) (log *logBuffer, stop func()) {
	t.Helper()
	log = &logBuffer{}
	handler := Routes(http.NotFoundHandler(), health.New("", slog.New(slog.DiscardHandler)))
	e := &Endpoint{Address: address, Handler: handler, Log: slog.New(slog.NewTextHandler(log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	e.Listen(ctx)
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
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

func TestEndpointRetriesAnAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	log, stop := runEndpoint(t, address)
	if text := log.String(); strings.Count(text, "level=WARN") != 1 ||
		!strings.Contains(text, "address already in use") || !strings.Contains(text, "set http.listen") {
		t.Errorf("log %s", text)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	answers := func(context.Context) (bool, error) {
		code, text, err := ask(t, http.MethodGet, address, "/readyz")
		return err == nil && code == http.StatusServiceUnavailable && strings.Contains(text, "started: the "), nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true,
		answers); err != nil {
		t.Errorf("the endpoint does not answer: %v", err)
	}
	stop()
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the port is still in use: %v", err)
	}
	_ = again.Close()
}

// serveOnAnyPort runs an endpoint until the test ends.
func serveOnAnyPort(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	e := &Endpoint{Address: "127.0.0.1:0", Handler: handler, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	e.Listen(ctx)
	address = e.listener.Addr().String()
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return address
}

func TestUnknownPathsAndMethodsAreRefused(t *testing.T) {
	conditions := health.New("", slog.New(slog.DiscardHandler))
	address := serveOnAnyPort(t, Routes(http.NotFoundHandler(), conditions))
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
	conditions.Set(health.Started, true, "")
	conditions.Set(health.Dataplane, true, "vpp")
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, text, err := ask(t, http.MethodGet, address, path); code != http.StatusOK || text != "ready\n" ||
			err != nil {
			t.Errorf("%s: %d %q, %v", path, code, text, err)
		}
	}
}

func TestEmptyAddressServesNothing(t *testing.T) {
	log, stop := runEndpoint(t, "")
	stop()
	if text := log.String(); text != "" {
		t.Errorf("log %s", text)
	}
}

func TestClientThatStallsInTheHeaderIsDisconnected(t *testing.T) {
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
		t.Error("the connection is still open")
	}
}
