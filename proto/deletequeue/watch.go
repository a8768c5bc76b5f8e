package deletequeue

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pollEvery is how often Watch looks for itself: it finds what notification missed, and failed entries' next attempt.
const pollEvery = 30 * time.Second

// Watch tells when there may be entries to drain, until ctx ends: then it closes
// the channel. Notices before the next read are one. An entry that a drain left
// behind is told again only with the next poll.
func (q *Queue) Watch(ctx context.Context) <-chan struct{} {
	notices := make(chan struct{}, 1)
	watcher, err := fsnotify.NewWatcher()
	if err == nil && watcher.Add(q.dir) != nil {
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

// watch works without a watcher too (the kernel's limit of inotify instances may be reached): then it only polls.
func (q *Queue) watch(ctx context.Context, watcher *fsnotify.Watcher, notices chan<- struct{}) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var events <-chan fsnotify.Event
	var overflow <-chan error
	if watcher != nil {
		events, overflow = watcher.Events, watcher.Errors
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
		case _, open := <-overflow: // or another error: look at everything
			if open {
				q.noticeAny(notices)
			}
		case <-poll.C:
			if watcher != nil {
				_ = watcher.Add(q.dir) // the directory may have been made anew
			}
			q.noticeAny(notices)
		}
	}
}

// isFresh is true for an entry that no drain has tried: those that a drain writes back are not news.
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
