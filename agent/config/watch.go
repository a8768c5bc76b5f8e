package config

import (
	"context"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Intervals of Watch: a file changes several times while it is written, and some file systems lose notifications.
const (
	settleTime = 100 * time.Millisecond
	pollTime   = 10 * time.Second
)

// Watch calls changed whenever a file in dir may have changed, until ctx ends.
func Watch(ctx context.Context, dir string, log *slog.Logger, changed func()) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer notify.Close()
	if err := notify.Add(dir); err != nil {
		log.Warn("changes are polled, not notified", "dir", dir, "every", pollTime, "err", err)
	}
	timer := time.NewTimer(pollTime)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-notify.Events:
			timer.Reset(settleTime)
		case err := <-notify.Errors:
			log.Warn("notification of changes failed", "dir", dir, "err", err)
			timer.Reset(settleTime)
		case <-timer.C:
			changed()
			timer.Reset(pollTime)
		}
	}
}
