package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// file is what is to be at a path.
type file struct {
	path    string
	content []byte
	mode    fs.FileMode
}

// Drafts are files on their way to their name. Runtimes take no file with this ending for a configuration.
const draftEnding = ".tmp"

// isThere reports whether the file is as it should be.
func (f file) isThere() bool {
	info, err := os.Lstat(f.path)
	if err != nil || info.Mode() != f.mode || info.Size() != int64(len(f.content)) {
		return false
	}
	now, err := os.ReadFile(f.path)
	return err == nil && bytes.Equal(now, f.content)
}

// isLeft reports whether the file needs no change: it is as it should be, or was once and the administrator changed it since.
// Two versions that both put back their own would never come to an end.
func (i *installer) isLeft(f file) bool {
	if f.isThere() {
		i.placed[f.path] = true
		return true
	}
	if _, err := os.Lstat(f.path); err != nil || !i.placed[f.path] {
		return false
	}
	if i.isNew(f.path, "changed") {
		i.log.Warn("an installed file was changed and is kept; install again to replace it", "file", f.path)
	}
	return true
}

// put makes a file appear at its path as a whole, or not at all. try, if there is one, judges it before it has its name.
func (i *installer) put(ctx context.Context, f file, try func(ctx context.Context, draft string) error) error {
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install %s: %w", f.path, err)
	}
	err := locked(ctx, dir, func() error {
		sweep(f.path)
		draft, err := i.draft(f)
		if err == nil && try != nil {
			err = try(ctx, draft)
		}
		if err == nil {
			err = i.name(draft, f.path)
		}
		if err != nil && draft != "" {
			err = errors.Join(err, gone(os.Remove(draft)))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", f.path, err)
	}
	i.placed[f.path] = true
	delete(i.said, f.path)
	return nil
}

// draft writes the file under a temporary name, with its final mode.
func (i *installer) draft(f file) (name string, err error) {
	w, err := os.CreateTemp(filepath.Dir(f.path), draftPattern(f.path))
	if err != nil {
		return "", err
	}
	name = w.Name()
	i.reached("made")
	half := len(f.content) / 2
	_, err = w.Write(f.content[:half])
	i.reached("half written")
	if err == nil {
		_, err = w.Write(f.content[half:])
	}
	i.reached("written")
	if err == nil {
		err = errors.Join(w.Chmod(f.mode), w.Sync())
	}
	i.reached("synced")
	return name, errors.Join(err, w.Close())
}

// name gives the draft its name, and makes sure that it keeps it when the power goes.
func (i *installer) name(draft, path string) error {
	i.reached("tried")
	if err := os.Rename(draft, path); err != nil {
		return err
	}
	i.reached("renamed")
	return syncDir(filepath.Dir(path))
}

func draftPattern(path string) string { return "." + filepath.Base(path) + ".*" + draftEnding }

// sweep removes what an installer that was killed has left of its drafts. The directory is locked, so no other installer runs.
func sweep(path string) {
	drafts, _ := filepath.Glob(filepath.Join(filepath.Dir(path), draftPattern(path))) // the pattern is sound
	for _, draft := range drafts {
		_ = os.Remove(draft) // harmless: the next installer tries again
	}
}

// tryLockAgain is the time between two looks at a directory in which another installer is at work.
const tryLockAgain = 50 * time.Millisecond

// locked runs f while no other installer works in the directory.
func locked(ctx context.Context, dir string, f func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // which unlocks it
	tick := time.NewTicker(tryLockAgain)
	defer tick.Stop()
	for {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("another installer is at work in %s: %w", dir, context.Cause(ctx))
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// gone takes the error of a removal: what is gone already is no error.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
