package deletequeue

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pollInterval is the interval in which Watch checks for entries that inotify missed, and for failed entries.
const pollInterval = 30 * time.Second

// Watch sends a notice when there may be entries to drain. When ctx ends it closes the channel. Notices that were not
// received are merged. For an entry that failed in a drain, the next notice comes with the next poll.
func (q *Queue) Watch(ctx context.Context) <-chan struct{} {
	notices := make(chan struct{}, 1)
	watcher, err := fsnotify.NewWatcher()
	if err == nil && watcher.Add(string(q.dir)) != nil {
		_ = watcher.Close()
		watcher = nil
	}
	go func() {
		defer close(notices)
		if watcher != nil {
			defer func() { _ = watcher.Close() }()
		}
		q.watch(ctx, watcher, notices)
	}()
	return notices
}

// watch only polls if watcher is nil, because the kernel's limit of inotify instances may be reached.
func (q *Queue) watch(ctx context.Context, watcher *fsnotify.Watcher, notices chan<- struct{}) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	var events <-chan fsnotify.Event
	var overflow <-chan error
	if watcher != nil {
		events = watcher.Events
		overflow = watcher.Errors
	}
	q.noticeAny(notices)
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			if event.Has(fsnotify.Create) && isFresh(event.Name) {
				notice(notices)
			}
		case _, open := <-overflow: // or another error
			if open {
				q.noticeAny(notices)
			}
		case <-poll.C:
			if watcher != nil {
				_ = watcher.Add(string(q.dir)) // the directory may be a new one
			}
			q.noticeAny(notices)
		}
	}
}

// isFresh reports whether no drain has tried the entry. A drain writes failed entries back, which causes no notice.
func isFresh(path string) bool {
	if !isEntry(filepath.Base(path)) {
		return false
	}
	e, err := readEntry(path)
	return err != nil || e.Attempts == 0
}

func (q *Queue) noticeAny(notices chan<- struct{}) {
	if n, err := q.Len(); err != nil || n > 0 {
		notice(notices)
	}
}

func notice(notices chan<- struct{}) {
	select {
	case notices <- struct{}{}:
	default:
	}
}
