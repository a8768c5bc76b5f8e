package exec

import "io"

// Bounded passes up to Left bytes of an output on to To and drops the rest: programs in containers are foreign, and
// their outputs may be endless.
type Bounded struct {
	To   io.Writer
	Left int
	Cut  bool // whether bytes were dropped
}

// Write never fails, because that would leave the connection in use.
func (b *Bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.Left)
	b.Cut = b.Cut || n < len(p)
	b.Left -= n
	_, _ = b.To.Write(p[:n])
	return len(p), nil
}
