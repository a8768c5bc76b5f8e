package stage

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Settle finishes the namespaces that this process was started in. It returns the process's pid on the
// machine, by which others enter.
func (s Stage) Settle() (pid string, err error) {
	pid, err = os.Readlink("/proc/self") // still that of the machine, so the number is the machine's too
	if err != nil {
		return "", fmt.Errorf("find this process: %w", err)
	}
	return pid, s.settle()
}

func (s Stage) settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Disk(), "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount the run's disk: %w", err)
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("forward packets: %w", err)
		}
	}
	return nil
}
