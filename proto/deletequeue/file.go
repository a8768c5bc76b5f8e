package deletequeue

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// tempPrefix marks incomplete files. The next drain removes those that a crash left.
const tempPrefix = ".tmp-"

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create delete queue: %w", err)
	}
	return nil
}

// writeDurably replaces a file atomically. When it returns, the new file survives a power failure.
func writeDurably(dir, name string, content []byte) error {
	temp, err := os.CreateTemp(dir, tempPrefix) // 0600
	if err != nil {
		return fmt.Errorf("write entry: %w", err)
	}
	_, err = temp.Write(content)
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("write entry: %w", err)
	}
	return syncDir(dir)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	defer func() { _ = dir.Close() }()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// readEntry reads an entry. Only this user can have written it: it is a regular file of this user that no other user
// may write, and its name matches its key.
func readEntry(path string) (Entry, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Entry{}, fmt.Errorf("open entry: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := trusted(file); err != nil {
		return Entry{}, err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxEntryBytes+1))
	if err != nil {
		return Entry{}, fmt.Errorf("read entry: %w", err)
	}
	e, err := parse(content)
	if err == nil && e.Key().fileName() != filepath.Base(path) {
		return Entry{}, fmt.Errorf("the file name does not match the key %s", e.Key())
	}
	return e, err
}

func trusted(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("stat entry: %w", err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("not a regular file: %s", info.Mode().Type())
	case int(owner) != os.Geteuid():
		return fmt.Errorf("owned by user %d, not %d", owner, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("mode %04o allows other users to write", info.Mode().Perm())
	}
	return nil
}

// removeTemps removes the incomplete files of crashed writers. The caller holds the exclusive lock, so no writer is
// active.
func removeTemps(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list delete queue: %w", err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), tempPrefix) {
			if err := removeFile(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
