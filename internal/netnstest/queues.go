package netnstest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Queues is CountQueues for a test. It skips the test if only root may mount a sysfs, or fails it if WEFT_REQUIRE has root.
func Queues(t testing.TB, path, link string) (rx, tx int) {
	t.Helper()
	rx, tx, err := CountQueues(path, link)
	if errors.Is(err, unix.EPERM) {
		need(t, "root", "sysfs", err)
	}
	if err != nil {
		t.Fatalf("count queues of %s: %v", link, err)
	}
	return rx, tx
}

// CountQueues counts the active queues of a link, in the namespace at path unless that is empty. It mounts a private sysfs, since netlink
// returns the possible number of queues.
func CountQueues(path, link string) (rx, tx int, err error) {
	counted := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has private mounts
		counted <- inside(path, func() (err error) {
			rx, tx, err = countQueues(link)
			return err
		})
	}()
	err = <-counted
	return rx, tx, err
}

func countQueues(link string) (rx, tx int, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return 0, 0, fmt.Errorf("new mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 0, 0, fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_RDONLY, ""); err != nil {
		return 0, 0, fmt.Errorf("mount sysfs: %w", err)
	}
	all, err := os.ReadDir("/sys/class/net/" + link + "/queues")
	for _, q := range all {
		if strings.HasPrefix(q.Name(), "rx-") {
			rx++
		} else {
			tx++
		}
	}
	return rx, tx, err
}
