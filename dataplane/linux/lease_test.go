package linux

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/wire"
)

// takeLease takes a lease on a file as its owner. The kernel lets others wait for 45 seconds when they open the file.
func takeLease(t *testing.T, name string) {
	t.Helper()
	failed := make(chan error)
	var f *os.File
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and its user with it
		if err := unix.Setfsuid(podUser); err != nil {
			failed <- err
			return
		}
		var err error
		if f, err = os.Open(name); err == nil {
			if _, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
				err = fmt.Errorf("lease: %w", err)
			}
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
}

// Finding 8: a pod owns its files and may take a lease on them, also where it cannot write in their directory.
func TestFinding8LeaseOnAFileDoesNotDelayItsReader(t *testing.T) {
	pod := newPodDirectory(t, true)
	name := pod + "/secret"
	v := wire.File{Type: wire.RegularFile, Mode: 0o440, UID: podUser, GID: podUser, Secret: "ours"}
	must(t, makeFiles(t, map[string]wire.File{name: v}))
	takeLease(t, name)
	read := make(chan error, 1)
	go func() {
		got, found, err := readKnown(name, []wire.File{v})
		if err == nil && (!found || got == v) {
			err = fmt.Errorf("a file that cannot be read now was read as %v, %t: it must differ, so that it is replaced", got, found)
		}
		read <- err
	}()
	select {
	case err := <-read:
		must(t, err)
	case <-time.After(20 * time.Second): // the kernel waits for 45 s
		t.Fatal("held up by a lease")
	}
	must(t, makeFiles(t, map[string]wire.File{name: v}))
	if got, found, err := readKnown(name, []wire.File{v}); err != nil || !found || got != v {
		t.Errorf("replaced, it is %v, %t, %v", got, found, err)
	}
}
