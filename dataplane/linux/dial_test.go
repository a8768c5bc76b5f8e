package linux

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The program of a pod may listen and not accept: a goroutine that waited for it would never end.
func TestDialAbstractDoesNotWaitForAServerThatDoesNotAccept(t *testing.T) {
	name := fmt.Sprintf("@weft-test/%d", os.Getpid())
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := dialSeqpacket(name)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	refused := make(chan error, 1)
	go func() {
		second, err := dialSeqpacket(name)
		if err == nil {
			_ = second.Close()
		}
		refused <- err
	}()
	select {
	case err := <-refused:
		if !errors.Is(err, unix.EAGAIN) {
			t.Errorf("with a full backlog: %v, want EAGAIN", err)
		}
	case <-time.After(10 * time.Second):
		if accepted, _, err := unix.Accept(fd); err == nil {
			_ = unix.Close(accepted)
		}
		t.Errorf("waits until the server accepts another client: %v", <-refused)
	}
}
