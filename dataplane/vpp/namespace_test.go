package vpp

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// Finding 11: to open a FIFO for reading waits for a writer, in the agent and, with the agent's descriptor, in the
// dataplane.
func TestFinding11FIFOAsNetworkNamespaceDoesNotHangTheAgent(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), strings.Repeat("x", maxNamespace))
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, _, err := newTap("a", wire.Interface{Type: wire.TypeTap, Tap: wire.Tap{Name: "eth0", Namespace: fifo}})
		asked <- err
	}()
	select {
	case err := <-asked:
		if err == nil || !strings.Contains(err.Error(), "is not a namespace") {
			t.Errorf("error %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it hangs")
	}
}
