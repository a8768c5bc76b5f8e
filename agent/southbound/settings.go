package southbound

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Sysctls is the directory of sysctls. The agent writes sysctls of interfaces, in the namespaces of pods and of the
// node.
const Sysctls = "/proc/sys"

// MakeWritable makes the file system of sysctls writable, which runtimes mount read-only in unprivileged containers.
// Only the mount of this container changes.
func MakeWritable(at string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(at, &fs); err != nil {
		return fmt.Errorf("look at %s: %w", at, err)
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	const kept = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|kept, ""); err != nil {
		return fmt.Errorf(
			"make %s writable: %w; it needs the capability SYS_ADMIN and no AppArmor profile that forbids mounts", at,
			err)
	}
	return nil
}
