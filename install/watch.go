package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Times of the watch: between two looks when nothing was heard, after one that did not succeed, and from the first of a
// burst of changes to the look at all of them.
const (
	lookAgain = time.Minute
	tryAgain  = time.Second
	burst     = 50 * time.Millisecond
)

// watch puts back what is removed, until ctx ends; that is no error.
func (i *installer) watch(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the directories of plugins and configurations: %w", err)
	}
	defer w.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	i.log.Info("watching", "dirs", i.dirs())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(i.look(ctx, w))
		case <-w.Events:
			timer.Reset(burst)
		case err := <-w.Errors:
			i.log.Warn("changes may have been missed", "err", err)
			timer.Reset(burst)
		}
	}
}

// look repairs what is missing and says when to look again.
func (i *installer) look(ctx context.Context, w *fsnotify.Watcher) time.Duration {
	// First the ear, then the look: what is removed between the two is heard.
	deaf := false
	for _, dir := range i.dirs() {
		deaf = w.Add(dir) != nil || deaf
	}
	err := i.repair(ctx)
	if err != nil && ctx.Err() == nil {
		i.sayOnce("watch", err)
		return tryAgain
	}
	delete(i.said, "watch")
	if deaf { // a directory was missing, and is there now
		return tryAgain
	}
	return lookAgain
}

// repair puts back what is missing, unless it has been taken away on purpose.
func (i *installer) repair(ctx context.Context) error {
	return besideMarker(ctx, i.marker(), func() error {
		if _, err := os.Lstat(i.marker()); err == nil {
			if i.isNew("marker", "there") {
				i.log.Warn("uninstalled: nothing is put back any more", "marker", i.marker())
			}
			return nil
		}
		return i.ensure(ctx)
	})
}

func (i *installer) dirs() []string {
	dirs := []string{i.BinDir}
	if target := i.target(); target != "" {
		dirs = append(dirs, filepath.Dir(target))
	}
	return dirs
}

// marker is a file that tells the watch of this node that what is missing has been taken away on purpose. It is beside the
// agent's socket, so that a reboot removes it.
func (o *Options) marker() string { return filepath.Join(filepath.Dir(o.Socket), "uninstalled") }

// mark tells the watch that it is to put nothing back any more; it has done its last when mark returns.
func mark(ctx context.Context, marker string) error {
	return besideMarker(ctx, marker, func() error {
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			return fmt.Errorf("tell the watch: %w", err)
		}
		return nil
	})
}

func unmark(marker string) error {
	if err := gone(os.Remove(marker)); err != nil {
		return fmt.Errorf("tell the watch: %w", err)
	}
	return nil
}

// besideMarker runs f while no other installer makes the marker, or restores files because there is none.
func besideMarker(ctx context.Context, marker string, f func() error) error {
	dir := filepath.Dir(marker)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return locked(ctx, dir, f)
}
