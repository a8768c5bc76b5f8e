package config

import (
	"context"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
)

// The pauses of Watch: a file that is being written changes several times, and notifications get lost on some file
// systems.
const (
	settleTime = 100 * time.Millisecond
	lookTime   = 10 * time.Second
)

// Watch calls look whenever something in dir may have changed, until ctx ends. It calls it too often rather than too
// rarely, so look compares with what it knows.
func Watch(ctx context.Context, dir string, log *slog.Logger, look func()) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer notify.Close()
	if err := notify.Add(dir); err != nil {
		log.Warn("changes are looked for, not notified", "dir", dir, "every", lookTime, "err", err)
	}
	timer := time.NewTimer(lookTime)
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
			look()
			timer.Reset(lookTime)
		}
	}
}
