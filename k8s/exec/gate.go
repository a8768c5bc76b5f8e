package exec

import (
	"io"
	"sync"
)

// gate passes an output on until it is closed: when a context ends, the library returns before its copies of the
// streams end, and the caller may already use what it has.
type gate struct {
	mu     sync.Mutex
	to     io.Writer // nil: the stream is not opened
	closed bool
}

func gateTo(to io.Writer) *gate { return &gate{to: to} }

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
	return g.to.Write(p)
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
