package devicemanager

import (
	"log/slog"

	"github.com/fsnotify/fsnotify"
)

// watcher reports changes in a directory that may be removed and recreated. It may miss changes: the registrar also
// polls.
type watcher struct {
	notify  *fsnotify.Watcher // nil where inotify is not available
	dir     string
	watched fileID
	log     *slog.Logger
}

func newWatcher(dir string, log *slog.Logger) *watcher {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("kubelet's directory is not watched, only polled", "err", err)
		notify = nil
	}
	return &watcher{notify: notify, dir: dir, log: log}
}

// follow watches the current directory.
func (w *watcher) follow() {
	now := directoryID(w.dir)
	if w.notify == nil || now == w.watched {
		return
	}
	w.watched = fileID{}
	if now.isZero() {
		return
	}
	_ = w.notify.Remove(w.dir) // the previous directory
	if err := w.notify.Add(w.dir); err != nil {
		w.log.Debug("kubelet's directory is not watched", "err", err)
		return
	}
	w.watched = now
}

// directoryID is the id of a directory, independent of its content.
func directoryID(dir string) fileID {
	s := fileIDOf(dir)
	s.modified = 0
	return s
}

// events returns the directory's events, nil without inotify.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

// errors returns the reports of lost events.
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
