package confine

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkSystemCall measures a system call of a worker: a read of an empty eventfd. With WEFT_CONFINE_TEST_CONFINED=1
// it confines the process first, which affects all later benchmarks of the process.
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
