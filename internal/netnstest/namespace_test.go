package netnstest_test

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// inode returns the inode of the namespace at path.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestNewNamespaceIsDifferentAndHasAShortPath(t *testing.T) {
	a := netnstest.New(t)
	b := netnstest.New(t)
	if inode(t, a) == inode(t, b) || inode(t, a) == inode(t, "/proc/self/ns/net") {
		t.Error("two namespaces are the same")
	}
	if len(a) > 63 {
		t.Errorf("path %s is too long for VPP", a)
	}
}

func TestDoRunsInTheNamespaceAndReturns(t *testing.T) {
	path := netnstest.New(t)
	outside := inode(t, "/proc/thread-self/ns/net")
	netnstest.Do(t, path, func() {
		if got := inode(t, "/proc/thread-self/ns/net"); got != inode(t, path) {
			t.Errorf("f runs in namespace %d, not in %s", got, path)
		}
		lo, err := net.InterfaceByName("lo")
		if err != nil || lo.Flags&net.FlagUp == 0 {
			t.Errorf("lo is not up: %v, %v", lo, err)
		}
	})
	if got := inode(t, "/proc/thread-self/ns/net"); got != outside {
		t.Errorf("the thread is in namespace %d after Do, want %d", got, outside)
	}
}

func TestRemoveDeletesThePathAndCanBeRepeated(t *testing.T) {
	path := netnstest.New(t)
	netnstest.Remove(t, path)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the path exists: %v", err)
	}
	netnstest.Remove(t, path)
}

func TestProcessHasAPrivateNamespace(t *testing.T) {
	netnstest.Require(t)
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name == "eth0" {
			t.Error("the process sees eth0 of the system")
		}
	}
}
