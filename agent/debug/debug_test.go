package debug

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a socket until the test ends.
func serve(t *testing.T) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "debug")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, Socket)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, socket, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	there := func(context.Context) (bool, error) { _, err := os.Stat(socket); return err == nil, nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 10*time.Second, true, there); err != nil {
		t.Fatal(err)
	}
	return socket
}

func get(ctx context.Context, socket, path string) (int, []byte, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return 0, nil, err
	}
	reply, err := client.Do(q)
	if err != nil {
		return 0, nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return reply.StatusCode, body, err
}

func TestProfilesAreServedToRootOnly(t *testing.T) {
	socket := serve(t)
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, path := range []string{"/debug/pprof/heap", "/debug/pprof/goroutine", "/debug/pprof/profile?seconds=1"} {
		code, body, err := get(t.Context(), socket, path)
		if err != nil || code != http.StatusOK || !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) { // gzip
			t.Errorf("%s: %d, %d bytes, %v", path, code, len(body), err)
		}
	}
}

func TestOtherPathsAndDurationsAreRefused(t *testing.T) {
	socket := serve(t)
	for path, want := range map[string]int{
		"/debug/pprof/": http.StatusNotFound, "/debug/pprof/cmdline": http.StatusNotFound,
		"/debug/pprof/symbol": http.StatusNotFound,
		"/debug/pprof/trace":  http.StatusNotFound, "/metrics": http.StatusNotFound,
		"/debug/pprof/profile?seconds=0":   http.StatusBadRequest,
		"/debug/pprof/profile?seconds=121": http.StatusBadRequest,
		"/debug/pprof/profile?seconds=x":   http.StatusBadRequest,
	} {
		if code, body, err := get(t.Context(), socket, path); code != want || err != nil {
			t.Errorf("%s: %d %s, %v", path, code, body, err)
		}
	}
}

// A client that leaves ends its profile, so that the next client gets one.
func TestSecondCPUProfileIsRefusedUntilTheFirstEnds(t *testing.T) {
	socket := serve(t)
	first, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		for first.Err() == nil { // it may be second itself
			_, _, _ = get(first, socket, "/debug/pprof/profile?seconds=120")
		}
	}()
	code := func() int { c, _, _ := get(t.Context(), socket, "/debug/pprof/profile?seconds=1"); return c }
	until := func(want int) {
		t.Helper()
		is := func(context.Context) (bool, error) { return code() == want, nil }
		if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, is); err != nil {
			t.Fatalf("never %d: %v", want, err)
		}
	}
	until(http.StatusConflict)
	leave()
	<-left
	until(http.StatusOK)
}
