package forward

// Trace returns the last frames received on an interface's port, oldest first, at most n of them, a line each: what it
// was, and what became of it.
func (e *Engine) Trace(index uint32, n int) []string { return nil }
