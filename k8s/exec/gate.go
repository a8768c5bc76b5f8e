package exec

import (
	"context"
	"io"
	"sync"
)

// gate passes an output on until it is closed: when a context ends, the library returns before its copies of the
// streams end, and the caller may already use what it has.
type gate struct {
	mu     sync.Mutex
	to     io.Writer // nil: the stream is not opened
	closed bool
	failed context.CancelCauseFunc // called if to fails: the library only logs that
}

func gateTo(to io.Writer, failed context.CancelCauseFunc) *gate { return &gate{to: to, failed: failed} }

// writer returns nil if the stream is not opened.
func (g *gate) writer() io.Writer {
	if g.to == nil {
		return nil
	}
	return g
}

// Write passes p on.
func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := g.to.Write(p)
	if err != nil {
		g.failed(OutputError{err})
	}
	return n, err
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
