package ctl

import (
	"bytes"
	"io"
	"sync"
)

// maxLine limits a line of a stream: longer ones are divided.
const maxLine = 1 << 20

// lines writes whole lines, each through a format. Several share a mutex and an output.
type lines struct {
	mu     *sync.Mutex
	to     io.Writer
	format func(line []byte) []byte
	begun  []byte // a line without its end
}

// Write writes the complete lines. One goroutine calls it.
func (l *lines) Write(p []byte) (int, error) {
	l.begun = append(l.begun, p...)
	for {
		end := bytes.IndexByte(l.begun, '\n')
		switch {
		case end >= 0:
			l.print(l.begun[:end])
			l.begun = l.begun[end+1:]
		case len(l.begun) > maxLine:
			l.print(l.begun)
			l.begun = nil
		default:
			return len(p), nil
		}
	}
}

// flush writes a last line that has no end.
func (l *lines) flush() {
	if len(l.begun) > 0 {
		l.print(l.begun)
		l.begun = nil
	}
}

func (l *lines) print(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(l.format(line)) // the reader of a stream may be gone: the context ends then
}
