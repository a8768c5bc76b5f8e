package unixsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var networks = []string{"unix", "unixpacket"}

func listen(t *testing.T, network, path string) net.Listener {
	t.Helper()
	l, err := Listen(t.Context(), network, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestOnlyTheOwnerCanConnect(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	for _, network := range networks {
		dir := t.TempDir()
		path := filepath.Join(dir, "agent.sock")
		l := listen(t, network, path)
		if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("%s: mode %v, %v", network, info.Mode(), err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: Close left %v, %v", network, left, err)
		}
	}
}

func TestListenReplacesAStaleSocketButNotALiveOne(t *testing.T) {
	for _, network := range networks {
		path := filepath.Join(t.TempDir(), "agent.sock")
		stale, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
		if err != nil {
			t.Fatal(err)
		}
		stale.SetUnlinkOnClose(false)
		if err := stale.Close(); err != nil {
			t.Fatal(err)
		}
		listen(t, network, path)
		if _, err := Listen(t.Context(), network, path); !errors.Is(err, ErrInUse) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: with a live socket Listen returns %v", network, err)
		}
		conn, err := net.Dial(network, path)
		if err != nil {
			t.Fatalf("%s: the first listener is not reachable: %v", network, err)
		}
		_ = conn.Close()
	}
}

func TestListenFailsForAnotherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), "unix", path); err == nil ||
		!strings.Contains(err.Error(), "the path is not a socket") {
		t.Errorf("Listen returns %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestCloseKeepsTheSocketOfALaterListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	first := listen(t, "unix", path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	listen(t, "unix", path)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestFailedListenLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", 256)) // longer than a file name can be
	if _, err := Listen(t.Context(), "unix", long); err == nil {
		t.Error("no error")
	}
	if _, err := Listen(t.Context(), "unix", filepath.Join(dir, "missing", "agent.sock")); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("in a missing directory Listen returns %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("files %v, %v", files, err)
	}
}

// A client that finds the socket can connect: the socket gets its name after listen.
func TestASocketThatExistsAcceptsConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		connected := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(path); err == nil {
					break
				}
			}
			conn, err := net.Dial("unix", path)
			if err == nil {
				_ = conn.Close()
			}
			connected <- err
		}()
		l := listen(t, "unix", path)
		if err := <-connected; err != nil {
			t.Error(err)
		}
		cancel()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListenSucceedsAfterItsContextEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.sock")
	stale, err := Bind(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := Listen(ctx, "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// A process that is killed between bind and rename leaves its temporary socket.
func TestListenRemovesTheTemporarySocketOfAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	killed, err := Bind(t.Context(), "unix", filepath.Join(dir, ".test.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := listen(t, "unix", filepath.Join(dir, "test.sock")).Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
