package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Delays of the watch until the next repair.
const (
	resyncInterval = time.Minute           // without a notification
	repairRetry    = time.Second           // after a failure
	debounce       = 50 * time.Millisecond // after the last notification of a burst
)

// watch restores removed files until ctx ends, which is no error.
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
			timer.Reset(i.repair(ctx, w))
		case <-w.Events:
			timer.Reset(debounce)
		case err := <-w.Errors:
			i.log.Warn("file notifications lost", "err", err)
			timer.Reset(debounce)
		}
	}
}

// repair restores missing files and returns the delay until the next repair.
func (i *installer) repair(ctx context.Context, w *fsnotify.Watcher) time.Duration {
	unwatched := false
	for _, dir := range i.dirs() { // before the restore, so that a later removal is notified
		unwatched = w.Add(dir) != nil || unwatched
	}
	err := i.restore(ctx)
	if err != nil && ctx.Err() == nil {
		i.log.incomplete("watch", err)
		return repairRetry
	}
	i.log.forget("watch")
	if unwatched { // a directory was missing; the restore created it
		return repairRetry
	}
	return resyncInterval
}

// restore installs what is missing unless Weft was uninstalled.
func (i *installer) restore(ctx context.Context) error {
	return withMarkerLocked(ctx, i.marker(), func() error {
		if _, err := os.Lstat(i.marker()); err == nil {
			if i.log.isNew("marker", "there") {
				i.log.Warn("files are not restored after an uninstall", "marker", i.marker())
			}
			return nil
		}
		return i.ensure(ctx)
	})
}

// marker returns the path of the file that stops the watch of this node from restoring files after an uninstall. It is
// in the directory of the agent's socket, so a reboot removes it.
func (o *Options) marker() string { return filepath.Join(filepath.Dir(o.Socket), "uninstalled") }

// createMarker stops the watch. The watch writes no file after createMarker returned.
func createMarker(ctx context.Context, marker string) error {
	return withMarkerLocked(ctx, marker, func() error {
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			return fmt.Errorf("stop the watch: %w", err)
		}
		return nil
	})
}

func removeMarker(marker string) error {
	if err := ignoreNotExist(os.Remove(marker)); err != nil {
		return fmt.Errorf("remove the marker of an uninstall: %w", err)
	}
	return nil
}

// withMarkerLocked calls f while no other installer creates the marker or restores files.
func withMarkerLocked(ctx context.Context, marker string, f func() error) error {
	dir := filepath.Dir(marker)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return locked(ctx, dir, f)
}
