package deletequeue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// directory holds the files of a queue.
type directory string

func (d directory) path(name string) string { return filepath.Join(string(d), name) }

// names returns the file names of the entries.
func (d directory) names() ([]string, error) {
	files, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list delete queue: %w", err)
	}
	var names []string
	for _, f := range files {
		if isEntry(f.Name()) {
			names = append(names, f.Name())
		}
	}
	return names, nil
}

func isEntry(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".")
}

// tempPrefix marks incomplete files. The next drain removes those that a crash left.
const tempPrefix = ".tmp-"

// write replaces a file atomically. When it returns, the new file survives a power failure.
func (d directory) write(name string, content []byte) error {
	temp, err := os.CreateTemp(string(d), tempPrefix) // 0600
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
		err = os.Rename(temp.Name(), d.path(name))
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("write entry: %w", err)
	}
	return syncDir(string(d))
}

func (d directory) remove(name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove entry: %w", err)
	}
	return nil
}

// removeTemps removes the incomplete files of crashed writers. The caller holds the exclusive lock, so no writer is
// active.
func (d directory) removeTemps() error {
	files, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("list delete queue: %w", err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), tempPrefix) {
			if err := d.remove(f.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create delete queue: %w", err)
	}
	return nil
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
