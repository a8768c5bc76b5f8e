package devicemanager

import (
	"log/slog"

	"github.com/fsnotify/fsnotify"
)

// watcher tells when something changes in a directory, which may come and go. It is a help, no promise: who needs to know
// also looks from time to time.
type watcher struct {
	notify  *fsnotify.Watcher // nil where the kernel gives none
	dir     string
	watched stamp
	log     *slog.Logger
}

func newWatcher(dir string, log *slog.Logger) *watcher {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("kubelet's directory is not watched, only looked at from time to time", "err", err)
		notify = nil
	}
	return &watcher{notify: notify, dir: dir, log: log}
}

// follow watches the directory that is there now.
func (w *watcher) follow() {
	now := directoryStamp(w.dir)
	if w.notify == nil || now == w.watched {
		return
	}
	w.watched = stamp{}
	if now.isZero() {
		return
	}
	_ = w.notify.Remove(w.dir) // of the directory that was there before
	if err := w.notify.Add(w.dir); err != nil {
		w.log.Debug("kubelet's directory is not watched", "err", err)
		return
	}
	w.watched = now
}

// directoryStamp is that of a directory, which does not change with what is in it.
func directoryStamp(dir string) stamp {
	s := stampOf(dir)
	s.modified = 0
	return s
}

// events are those of the directory; nil where there are none.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// errors tell that events were lost.
func (w *watcher) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}
