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
	"k8s.io/apimachinery/pkg/util/wait"
)

// file is a desired file.
type file struct {
	path    string
	content []byte
	mode    fs.FileMode
}

// files writes files of the node, each by a rename within its directory.
type files struct {
	log     *notices
	placed  map[string]bool   // files that were as desired at least once: a later change is the administrator's
	reached func(step string) // for tests, which crash the installer at a step
}

// draftExtension ends the names of temporary files. Runtimes do not read such files as configurations.
const draftExtension = ".tmp"

// isPresent reports whether the file has the desired content and mode.
func (f file) isPresent() bool {
	info, err := os.Lstat(f.path)
	return err == nil && info.Mode() == f.mode && info.Size() == int64(len(f.content)) && hasContent(f.path, f.content)
}

func hasContent(path string, content []byte) bool {
	now, err := os.ReadFile(path)
	return err == nil && bytes.Equal(now, content)
}

// isKept reports whether the file is not written: it is as desired, or it was and the administrator changed it since.
// Otherwise installers of two versions would replace each other's files forever.
func (w *files) isKept(f file) bool {
	if f.isPresent() {
		w.placed[f.path] = true
		return true
	}
	if _, err := os.Lstat(f.path); err != nil || !w.placed[f.path] {
		return false
	}
	if w.log.isNew(f.path, "changed") {
		w.log.Warn("installed file was changed and is kept: run install again to replace it", "file", f.path)
	}
	return true
}

// put writes a file atomically. test, unless it is nil, can reject the temporary file.
func (w *files) put(ctx context.Context, f file, test func(ctx context.Context, draft string) error) error {
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install %s: %w", f.path, err)
	}
	err := locked(ctx, dir, func() error {
		removeDrafts(f.path)
		draft, err := w.draft(f)
		if err == nil && test != nil {
			err = test(ctx, draft)
		}
		if err == nil {
			err = w.rename(draft, f.path)
		}
		if err != nil && draft != "" {
			err = errors.Join(err, ignoreNotExist(os.Remove(draft)))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", f.path, err)
	}
	w.placed[f.path] = true
	w.log.forget(f.path)
	return nil
}

// draft writes the file under a temporary name, with its final mode.
func (w *files) draft(f file) (name string, err error) {
	draft, err := os.CreateTemp(filepath.Dir(f.path), draftPattern(f.path))
	if err != nil {
		return "", err
	}
	name = draft.Name()
	w.reached("created")
	half := len(f.content) / 2
	_, err = draft.Write(f.content[:half])
	w.reached("half written")
	if err == nil {
		_, err = draft.Write(f.content[half:])
	}
	w.reached("written")
	if err == nil {
		err = errors.Join(draft.Chmod(f.mode), draft.Sync())
	}
	w.reached("synced")
	return name, errors.Join(err, draft.Close())
}

// rename gives the draft its final name, durably.
func (w *files) rename(draft, path string) error {
	w.reached("tested")
	if err := os.Rename(draft, path); err != nil {
		return err
	}
	w.reached("renamed")
	return syncDir(filepath.Dir(path))
}

func draftPattern(path string) string { return "." + filepath.Base(path) + ".*" + draftExtension }

// removeDrafts removes drafts of installers that were killed. The directory is locked, so no other installer runs.
func removeDrafts(path string) {
	drafts, _ := filepath.Glob(filepath.Join(filepath.Dir(path), draftPattern(path))) // the pattern is valid
	for _, draft := range drafts {
		_ = os.Remove(draft) // harmless: the next installer tries again
	}
}

// lockInterval is the time between two attempts to lock a directory.
const lockInterval = 50 * time.Millisecond

// locked calls f while no other installer works in the directory.
func locked(ctx context.Context, dir string, f func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // unlocks it
	err = wait.PollUntilContextCancel(ctx, lockInterval, true, func(context.Context) (bool, error) {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return true, err
	})
	switch {
	case err == nil:
		return f()
	case wait.Interrupted(err):
		return fmt.Errorf("another installer works in %s: %w", dir, context.Cause(ctx))
	}
	return fmt.Errorf("lock %s: %w", dir, err)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ignoreNotExist turns the error of a missing file into nil.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
