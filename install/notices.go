package install

import "log/slog"

// notices is a log that does not repeat itself: the installer meets the same obstacle at each attempt.
type notices struct {
	*slog.Logger
	last map[string]string // last message by subject
}

// incomplete logs why the installation is incomplete. It does not repeat a reason.
func (n *notices) incomplete(subject string, err error) {
	if n.isNew(subject, err.Error()) {
		n.Warn("installation incomplete, retrying", "err", err)
	}
}

// isNew reports whether the text differs from the last one about the subject.
func (n *notices) isNew(subject, text string) bool {
	repeated := n.last[subject] == text
	n.last[subject] = text
	return !repeated
}

// forget lets the next message about the subject be logged.
func (n *notices) forget(subject string) { delete(n.last, subject) }
