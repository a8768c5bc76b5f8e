package leftovers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// addFiles records every file below dir, and dir itself. A missing directory has no files.
func (s *Snapshot) addFiles(dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted in the meantime
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		s.add("file", path, "%s", info.Mode())
		return nil
	})
	if err != nil {
		return fmt.Errorf("read files: %w", err)
	}
	return nil
}

// addDescriptors records a process's open descriptors, without the numbers of sockets and pipes.
func (s *Snapshot) addDescriptors(role string, pid int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read descriptors of %s: %w", role, err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed in the meantime
		}
		if err != nil {
			return fmt.Errorf("read descriptors of %s: %w", role, err)
		}
		if target == "anon_inode:[pidfd]" {
			continue // Go waits for a child with it
		}
		if kind, _, found := strings.Cut(target, ":["); found && !strings.HasPrefix(target, "anon_inode") {
			target = kind // socket:[123], pipe:[123], net:[123]
		}
		s.add("descriptor", role, "%s", target)
	}
	return nil
}
