package netns_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
	"github.com/weftnet/weft/test/netns"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestDoRunsInsideAndTheCallerStaysOutside(t *testing.T) {
	netnstest.Require(t)
	path := filepath.Join(t.TempDir(), "a")
	if err := netns.Make(path); err != nil {
		t.Fatal(err)
	}
	outside := inode(t, "/proc/thread-self/ns/net")
	err := netns.Do(path, func() error {
		if inode(t, "/proc/thread-self/ns/net") != inode(t, path) {
			t.Error("runs outside")
		}
		lo, err := net.InterfaceByName("lo")
		if err == nil && lo.Flags&net.FlagUp == 0 {
			t.Error("lo is down")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if inode(t, "/proc/thread-self/ns/net") != outside {
		t.Error("the caller is inside, too")
	}
	if err := netns.Remove(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the path still exists: %v", err)
	}
	if err := netns.Remove(path); err != nil {
		t.Errorf("removal of a removed namespace: %v", err)
	}
}

func TestMakeRefusesAnExistingPath(t *testing.T) {
	netnstest.Require(t)
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := netns.Make(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want it to name %s", err, path)
	}
	if content, _ := os.ReadFile(path); string(content) != "mine" {
		t.Error("the file was changed")
	}
}

func TestDoReportsAMissingNamespace(t *testing.T) {
	netnstest.Require(t)
	if err := netns.Do(filepath.Join(t.TempDir(), "gone"), func() error { t.Error("ran"); return nil }); err == nil {
		t.Error("no error")
	}
}

// mainNamespace is the main thread's network namespace at the start of the process. /proc/PID/ns shows it to other
// programs.
var mainNamespace, _ = os.Readlink("/proc/self/ns/net")

// Concurrent calls occupy all threads of the process, including the main thread.
func TestDoDoesNotMoveTheMainThread(t *testing.T) {
	netnstest.Require(t)
	path := filepath.Join(t.TempDir(), "pod")
	if err := netns.Make(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netns.Remove(path) })
	const calls = 64
	var entered, ended sync.WaitGroup
	entered.Add(calls)
	for range calls {
		ended.Go(func() {
			err := netns.Do(path, func() error {
				entered.Done()
				entered.Wait()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	ended.Wait()
	if now, err := os.Readlink("/proc/self/ns/net"); now != mainNamespace || err != nil {
		t.Errorf("the main thread is in %s (%v), it was in %s", now, err, mainNamespace)
	}
}
