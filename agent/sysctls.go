package agent

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// settings is where the kernel's settings are. Those of interfaces are written there, in pods' namespaces and the node's.
const settings = "/proc/sys"

// openSettings makes a read-only file system of settings writable: a runtime mounts it so for containers that are not
// privileged. Only this container's view of it changes.
func openSettings(at string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", at, err)
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|kept, ""); err != nil {
		return fmt.Errorf("make %s writable: %w; it needs the capability SYS_ADMIN and no AppArmor profile that forbids mounts", at, err)
	}
	return nil
}
