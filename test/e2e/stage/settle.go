package stage

import (
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Settle sets up the namespaces in which this process was started. It returns the process's PID on the host.
func (s Stage) Settle() (pid string, err error) {
	pid, err = os.Readlink("/proc/self") // /proc is still the host's
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
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(file, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("forward packets: %w", err)
		}
	}
	return nil
}
