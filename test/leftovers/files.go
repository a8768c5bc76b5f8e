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

// addFiles notes every file below dir, and dir itself. A directory that is not there holds nothing.
func (s *Snapshot) addFiles(dir string) error {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
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
		return fmt.Errorf("look at files: %w", err)
	}
	return nil
}

// addDescriptors notes what a process holds open. Numbers that differ from one socket to the next are left out.
func (s *Snapshot) addDescriptors(role string, pid int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look at descriptors of %s: %w", role, err)
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return fmt.Errorf("look at descriptors of %s: %w", role, err)
		}
		if target == "anon_inode:[pidfd]" {
			continue // how Go waits for a child: it tells who started whom, not what a pod needed
		}
		if kind, _, found := strings.Cut(target, ":["); found && !strings.HasPrefix(target, "anon_inode") {
			target = kind // socket:[123], pipe:[123], net:[123]
		}
		s.add("descriptor", role, "%s", target)
	}
	return nil
}
