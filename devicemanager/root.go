package devicemanager

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// prepare makes the directories that others have a part in: those above the allocations, and that of device information.
// They are no objects of the scheduler, which removes a directory with all that is in it: one that is configured no more
// may hold what somebody else needs.
func (m *Manager) prepare() error {
	if err := os.MkdirAll(m.config.DeviceInfoDir, 0o755); err != nil {
		return fmt.Errorf("directory of device information: %w", err)
	}
	roots := []string{m.config.Root}
	for _, a := range m.inOrder() {
		roots = append(roots, filepath.Dir(a.Directory))
	}
	slices.Sort(roots)
	for _, root := range slices.Compact(roots) {
		if err := secureRoot(root); err != nil {
			return fmt.Errorf("directory of memifs: %w", err)
		}
	}
	return nil
}

// secureRoot makes a directory that only root may enter, or makes sure that it is one.
func secureRoot(root string) error {
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(root, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(root)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is no directory of root's: remove it, or configure another one", root)
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ours := allocationOf(e); !ours {
			return fmt.Errorf("%s is open to others (%s) and holds %s, which is not ours: configure a directory of its own",
				root, info.Mode().Perm(), e.Name())
		}
	}
	return os.Chmod(root, 0o700)
}
