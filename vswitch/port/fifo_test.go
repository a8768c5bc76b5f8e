package port_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/vswitch/port"
)

// Opening a FIFO for reading blocks until there is a writer.
func TestFIFOAsNetworkNamespaceIsRejected(t *testing.T) {
	namespace(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		_, err := port.OpenTap(port.TapConfig{Namespace: fifo, Name: "eth0"})
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, port.ErrNamespaceGone) {
			t.Errorf("error %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it hangs")
		writer, err := unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			_ = unix.Close(writer)
		}
		t.Log(<-opened)
	}
}
