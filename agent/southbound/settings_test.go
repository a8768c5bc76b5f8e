package southbound

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weftnet/weft/internal/netnstest"
)

func TestReadOnlySettingsBecomeWritable(t *testing.T) {
	netnstest.Require(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root: a user namespace may not make read-only mounts of others writable")
	}
	at := t.TempDir()
	for _, step := range []error{
		unix.Mount(Sysctls, at, "", unix.MS_BIND, ""),
		unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
			""),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	setting := at + "/net/ipv4/conf/lo/forwarding"
	before, err := os.ReadFile(setting)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(setting, before, 0); err == nil {
		t.Fatal("the Sysctls are not read-only at all")
	}
	for range 2 { // nor does a second time hurt
		if err := MakeWritable(at); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(setting, before, 0); err != nil {
			t.Errorf("still not writable: %v", err)
		}
	}
}

func TestSettingsThatAreNotThereAreNamed(t *testing.T) {
	if err := MakeWritable("/proc/no-Sysctls"); err == nil || !strings.Contains(err.Error(), "/proc/no-Sysctls") {
		t.Errorf("error %v", err)
	}
}
