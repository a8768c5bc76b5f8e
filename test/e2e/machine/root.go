package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// own are directories that a machine does not inherit: they are empty at its first boot. containerd's cannot be on the
// root's overlay, because overlays do not nest.
var own = []string{
	"/etc/cni/net.d", "/etc/kubernetes", "/opt/cni/bin", "/var/lib/cni", "/var/lib/containerd",
	"/var/lib/kubelet", "/var/lib/weft",
	"/var/log/containers",
}

// podLogs is the directory of containers' logs, beside the programs' logs, so that they are kept after a failed run.
const podLogs = "/var/log/pods"

// mountRoot gives this process a root directory with the host's content, as an overlay: writes stay on the machine's
// disk.
func (b birth) mountRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	upper := filepath.Join(b.Disk, "upper")
	work := filepath.Join(b.Disk, "work")
	for _, dir := range []string{upper, work, b.root()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the disk: %w", err)
		}
	}
	// A power cut mounts the same upper directory again, maybe before the kernel has released the first mount.
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s,index=off", upper, work)
	if err := unix.Mount("overlay", b.root(), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	for _, step := range []func() error{b.mountKernel, b.mountOwn, b.mountShared, b.pivot} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// mountKernel mounts the kernel's file systems, and those that are empty after a boot.
func (b birth) mountKernel() error {
	fresh := []struct{ kind, at, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"tmpfs", "/run", "mode=755"}, {"tmpfs", "/tmp", "mode=1777"},
	}
	for _, f := range fresh {
		if err := unix.Mount(f.kind, b.root()+f.at, f.kind, 0, f.options); err != nil {
			return fmt.Errorf("mount %s: %w", f.at, err)
		}
	}
	for _, at := range []string{"/dev", cgroupMount} {
		if err := unix.Mount(at, b.root()+at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", at, err)
		}
	}
	return nil
}

// mountOwn binds the machine's own directories from its disk.
func (b birth) mountOwn() error {
	for _, at := range own {
		if err := bind(filepath.Join(b.Disk, "own", at), b.root()+at); err != nil {
			return err
		}
	}
	return bind(b.Pods, b.root()+podLogs)
}

// mountShared binds directories that all machines share; they may be on file systems that the overlay does not include.
func (b birth) mountShared() error {
	for _, at := range b.Shared {
		if err := bind(at, b.root()+at); err != nil {
			return err
		}
		if err := unix.Mount("", b.root()+at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", at, err)
		}
	}
	return nil
}

func bind(from, to string) error {
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", to, err)
	}
	return nil
}

// pivot makes the new root the root. Its mounts are shared, as under systemd, so that pods can mount on the machine.
func (b birth) pivot() error {
	if err := os.Chdir(b.root()); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}
