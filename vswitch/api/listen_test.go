package api

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestListenSocketIsPrivateToOwner(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "made", "api.sock")
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
		t.Fatalf("directory's mode %v, %v", dir.Mode(), err)
	}
}

func TestListenReplacesSocketOfDeadServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestListenFailsOnSocketOfRunningServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	first, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := Listen(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Fatalf("want ErrInUse, got %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal("the first server is unreachable:", err)
	}
	conn.Close()
}

func TestListenSocketPathOfOtherFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), path); err == nil {
		t.Fatal("listens on a file")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatal("the file is gone:", err)
	}
}

func TestListenSocketAcceptsOnceVisibleAndCloseRemovesIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "api.sock")
	for range 50 {
		found := make(chan error, 1)
		go func() {
			for {
				if _, err := os.Stat(path); err == nil {
					break
				}
			}
			conn, err := net.Dial("unix", path)
			if err == nil {
				conn.Close()
			}
			found <- err
		}()
		l, err := Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-found; err != nil {
			t.Fatal("socket exists, but:", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Fatalf("left: %v, %v", left, err)
	}
}
