package confine

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkSystemCall is what a filter costs each system call of a worker: a read of an eventfd that is empty. Environment
// WEFT_CONFINE_TEST_CONFINED=1 confines the process first, which no benchmark behind it in the same process can undo.
func BenchmarkSystemCall(b *testing.B) {
	if os.Getenv("WEFT_CONFINE_TEST_CONFINED") != "" {
		if err := Dataplane(); err != nil {
			b.Fatal(err)
		}
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	var count [8]byte
	for b.Loop() {
		_, _ = unix.Read(fd, count[:])
	}
}
