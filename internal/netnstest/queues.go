package netnstest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/test/netns"
)

// Queues is CountQueues for a test. Where only root may mount a sysfs it skips the test, or fails it if WEFT_REQUIRE
// contains root.
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

// CountQueues counts the queues that the kernel uses of a link in the namespace at path, or in the caller's if path is
// empty. Netlink reports only the maximum.
func CountQueues(path, link string) (rx, tx int, err error) {
	err = WithSysfs(path, func() error {
		all, err := os.ReadDir("/sys/class/net/" + link + "/queues")
		for _, q := range all {
			if strings.HasPrefix(q.Name(), "rx-") {
				rx++
			} else {
				tx++
			}
		}
		return err
	})
	return rx, tx, err
}

// WithSysfs runs f on a thread in the namespace at path, or in the caller's if path is empty, with a new sysfs: an
// existing one shows the links of another namespace. Only root may mount a sysfs.
func WithSysfs(path string, f func() error) error {
	if path == "" {
		path = threadNamespace
	}
	return netns.Do(path, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("new mounts: %w", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("private mounts: %w", err)
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount sysfs: %w", err)
		}
		return f()
	})
}
